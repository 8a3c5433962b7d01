import { expect, test } from 'vitest'
import { describeStep as described, hasLineNumbers, parseMatches } from '../src/lib/transcript/tools'
import type { ToolStep } from '../src/lib/transcript/exchanges'

const step = (name: string, given: object): ToolStep => ({
  kind: 'tool',
  key: '1',
  seq: 1,
  call: { type: 'tool_call', id: '1', name, arguments: given as never },
  result: null,
  at: '',
  doneAt: null,
  doneSeq: null,
})

test('a step is told by what it did and to what', () => {
  expect(described(step('Bash', { command: 'ls -l\ncat x' }))).toMatchObject({
    toolKind: 'run',
    target: 'ls -l',
    name: '',
  })
  expect(described(step('weather', { city: 'Bonn' }))).toMatchObject({
    toolKind: 'other',
    name: 'weather',
    target: 'Bonn',
  })
})

test('places are read only when every line names one', () => {
  expect(parseMatches('src/a.py:12:def run():\nsrc/b.py:3: x: int')).toEqual([
    { path: 'src/a.py', line: '12', text: 'def run():' },
    { path: 'src/b.py', line: '3', text: ' x: int' },
  ])
  expect(parseMatches('nothing found')).toBeNull()
  expect(parseMatches('')).toBeNull()
})

test('a file that is numbered already is not numbered again', () => {
  expect(hasLineNumbers('  1\tone\n  2\ttwo')).toBe(true)
  expect(hasLineNumbers('one\ntwo')).toBe(false)
})
