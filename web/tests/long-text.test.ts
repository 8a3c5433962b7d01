import { expect, test } from 'vitest'
import { excerpt, isLongText, splitText } from '../src/lib/text/long-text'
import { splitAtWords } from '../src/lib/text/search-words'

const LINES = Array.from({ length: 9_000 }, (_, number) => `line ${number} of a text`).join('\n')

test('slices are the whole text, and end with a line where there are lines', () => {
  const parts = splitText(LINES)

  expect(parts.join('')).toBe(LINES)
  expect(parts.length).toBeGreaterThan(5)
  expect(parts.slice(0, -1).every((part) => part.endsWith('\n'))).toBe(true)
})

test('a text without lines is sliced between characters', () => {
  const parts = splitText('😀'.repeat(30_000))

  expect(parts.join('')).toBe('😀'.repeat(30_000))
  expect(parts.every((part) => /^(?:😀)+$/u.test(part))).toBe(true)
})

test('the part that is shown has the words that were looked for, or the end while the text grows', () => {
  expect(isLongText(LINES)).toBe(true)
  expect(excerpt(LINES, [], false)).toMatchObject({ of: 'beginning', text: expect.stringMatching(/^line 0 /) })
  expect(excerpt(LINES, ['line 8000'], false)).toMatchObject({
    of: 'found',
    text: expect.stringContaining('line 8000 of'),
  })
  expect(excerpt(LINES, ['nowhere'], false).of).toBe('beginning')
  expect(excerpt(LINES, [], true)).toMatchObject({ of: 'end', text: expect.stringMatching(/line 8999 of a text$/) })
})

test('every second piece is one of the words', () => {
  expect(splitAtWords('An apple, a pear, APPLES', ['apple', 'pear'])).toEqual([
    'An ',
    'apple',
    ', a ',
    'pear',
    ', ',
    'APPLE',
    'S',
  ])
  expect(splitAtWords('plain', [])).toEqual(['plain'])
})
