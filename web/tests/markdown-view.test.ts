import { expect, test } from 'vitest'
import { highlightWords, renderMarkdown } from '../src/lib/text/markdown-view'

const LABELS = { copy: 'Copy', code: 'Code', table: 'Table' }

test('while a text grows, finished blocks stay the same nodes', () => {
  const node = document.createElement('div')
  renderMarkdown(node, { text: 'first\n\nsec', labels: LABELS })
  const first = node.firstElementChild

  renderMarkdown(node, { text: 'first\n\nsecond', labels: LABELS })

  expect(node.firstElementChild).toBe(first)
  expect(node.textContent).toContain('second')
})

test('painting the same text again changes nothing', () => {
  const node = document.createElement('div')
  renderMarkdown(node, { text: 'one\n\ntwo', labels: LABELS })
  const kept = [...node.children]

  renderMarkdown(node, { text: 'one\n\ntwo', labels: LABELS })

  expect([...node.children]).toEqual(kept)
})

test('found words are marked, and the text stays the same', () => {
  const node = document.createElement('div')
  renderMarkdown(node, { text: 'a **Rule** about rules', labels: LABELS })

  highlightWords(node, ['rule'])

  expect([...node.querySelectorAll('mark')].map((each) => each.textContent)).toEqual(['Rule', 'rule'])
  expect(node.textContent?.trim()).toBe('a Rule about rules')
})

test('other words are marked in place of those before them', () => {
  const node = document.createElement('div')
  renderMarkdown(node, { text: 'apples and pears', labels: LABELS, highlights: ['apples'] })

  renderMarkdown(node, { text: 'apples and pears', labels: LABELS, highlights: ['pears'] })
  expect([...node.querySelectorAll('mark')].map((each) => each.textContent)).toEqual(['pears'])
  renderMarkdown(node, { text: 'apples and pears', labels: LABELS, highlights: [] })
  expect(node.querySelector('mark')).toBeNull()
})

test('lists, tables and quotations take the direction of their own words', () => {
  const node = document.createElement('div')
  renderMarkdown(node, { text: 'text\n\n- one\n  - two\n\n> quoted\n\n| a |\n|---|\n| b |', labels: LABELS })

  expect([...node.querySelectorAll('[dir]')].map((each) => each.tagName)).toEqual(['UL', 'BLOCKQUOTE', 'TABLE'])
})
