import { expect, test } from 'vitest'
import { markWords, paint } from '../src/lib/attach'

test('while a text grows, finished blocks stay the same nodes', () => {
  const node = document.createElement('div')
  paint(node, { text: 'first\n\nsec', copyLabel: 'Copy' })
  const first = node.firstElementChild

  paint(node, { text: 'first\n\nsecond', copyLabel: 'Copy' })

  expect(node.firstElementChild).toBe(first)
  expect(node.textContent).toContain('second')
})

test('painting the same text again changes nothing', () => {
  const node = document.createElement('div')
  paint(node, { text: 'one\n\ntwo', copyLabel: 'Copy' })
  const kept = [...node.children]

  paint(node, { text: 'one\n\ntwo', copyLabel: 'Copy' })

  expect([...node.children]).toEqual(kept)
})

test('found words are marked, and the text stays the same', () => {
  const node = document.createElement('div')
  paint(node, { text: 'a **Rule** about rules', copyLabel: 'Copy' })

  markWords(node, ['rule'])

  expect([...node.querySelectorAll('mark')].map((each) => each.textContent)).toEqual(['Rule', 'rule'])
  expect(node.textContent?.trim()).toBe('a Rule about rules')
})
