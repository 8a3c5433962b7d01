import { expect, test } from 'vitest'
import { parseAnsi, stripAnsi } from '../src/lib/text/ansi'

test('colours become classes, and the text stays', () => {
  expect(parseAnsi('\x1b[31merror\x1b[0m: full')).toEqual([
    { text: 'error', classes: 'ansi-1' },
    { text: ': full', classes: '' },
  ])
})

test('what would move a cursor, set a title or ring is left out', () => {
  expect(stripAnsi('\x1b]0;title\x07a\x1b[2Jb\x07c\x1b[10;5H')).toBe('abc')
})

test('a line that was written over shows its last state', () => {
  expect(parseAnsi('10 %\r50 %\r100 %\n')[0]?.text).toBe('100 %\n')
})

test('256 colours take their arguments with them', () => {
  expect(parseAnsi('\x1b[38;5;196mx\x1b[48;2;1;2;3my')).toEqual([{ text: 'xy', classes: 'ansi-4' }])
})
