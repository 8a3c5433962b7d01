import { expect, test } from 'vitest'
import { markWords, paint } from '../src/lib/attach'

const LABELS = { copy: 'Copy', code: 'Code', table: 'Table' }

test('while a text grows, finished blocks stay the same nodes', () => {
  const node = document.createElement('div')
  paint(node, { text: 'first\n\nsec', labels: LABELS })
  const first = node.firstElementChild

  paint(node, { text: 'first\n\nsecond', labels: LABELS })

  expect(node.firstElementChild).toBe(first)
  expect(node.textContent).toContain('second')
})

test('painting the same text again changes nothing', () => {
  const node = document.createElement('div')
  paint(node, { text: 'one\n\ntwo', labels: LABELS })
  const kept = [...node.children]

  paint(node, { text: 'one\n\ntwo', labels: LABELS })

  expect([...node.children]).toEqual(kept)
})

test('found words are marked, and the text stays the same', () => {
  const node = document.createElement('div')
  paint(node, { text: 'a **Rule** about rules', labels: LABELS })

  markWords(node, ['rule'])

  expect([...node.querySelectorAll('mark')].map((each) => each.textContent)).toEqual(['Rule', 'rule'])
  expect(node.textContent?.trim()).toBe('a Rule about rules')
})

test('other words are marked in place of those before them', () => {
  const node = document.createElement('div')
  paint(node, { text: 'apples and pears', labels: LABELS, marks: ['apples'] })

  paint(node, { text: 'apples and pears', labels: LABELS, marks: ['pears'] })
  expect([...node.querySelectorAll('mark')].map((each) => each.textContent)).toEqual(['pears'])
  paint(node, { text: 'apples and pears', labels: LABELS, marks: [] })
  expect(node.querySelector('mark')).toBeNull()
})

test('lists, tables and quotations take the direction of their own words', () => {
  const node = document.createElement('div')
  paint(node, { text: 'text\n\n- one\n  - two\n\n> quoted\n\n| a |\n|---|\n| b |', labels: LABELS })

  expect([...node.querySelectorAll('[dir]')].map((each) => each.tagName)).toEqual(['UL', 'BLOCKQUOTE', 'TABLE'])
})
