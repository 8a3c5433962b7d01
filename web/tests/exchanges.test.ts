import { expect, test } from 'vitest'
import { buildExchanges } from '../src/lib/transcript/exchanges'
import { describeStep, isUnifiedDiff, outputText } from '../src/lib/transcript/tools'
import type { Entry, Part } from '../src/lib/api/types'

let seq = 0
function entry(role: Entry['role'], parts: Part[] | string, more: Partial<Entry> = {}): Entry {
  seq += 1
  const made = typeof parts === 'string' ? [{ type: 'text', text: parts }] : parts
  return {
    id: `s-${seq}`,
    session_id: 's',
    seq,
    kind: 'message',
    at: `2026-03-02T10:00:${String(seq % 60).padStart(2, '0')}Z`,
    turn_id: null,
    role,
    parts: made,
    text: typeof parts === 'string' ? parts : '',
    ...more,
  } as Entry
}

test('a question, its work and its answer are one round', () => {
  const found = buildExchanges([
    entry('user', 'why?'),
    entry('assistant', [
      { type: 'text', text: 'Let me look.' },
      { type: 'tool_call', id: 'c1', name: 'bash', arguments: { command: 'df -h' } },
    ]),
    entry('tool', [{ type: 'tool_result', call_id: 'c1', content: 'full', is_error: true }]),
    entry('assistant', 'It is full.'),
  ])

  expect(found).toHaveLength(1)
  expect(found[0]?.steps.map((step) => step.kind)).toEqual(['note', 'tool'])
  expect(found[0]?.failed).toBe(1)
  expect(found[0]?.answers.map((each) => each.text)).toEqual(['It is full.'])
})

test('a part of an unknown kind is shown, never dropped', () => {
  const found = buildExchanges([entry('user', 'hi'), entry('assistant', [{ type: 'hologram', depth: 3 }])])

  expect(found[0]?.steps[0]).toMatchObject({ kind: 'unknown', text: 'hologram', data: { type: 'hologram', depth: 3 } })
})

test('a result without its call is a step of its own', () => {
  const found = buildExchanges([entry('tool', [{ type: 'tool_result', call_id: 'gone', content: 'x' }])])

  expect(found[0]?.steps).toHaveLength(1)
})

test('a new day, a pause and another model are said', () => {
  const found = buildExchanges([
    entry('user', 'a', { at: '2026-03-02T10:00:00' }),
    entry('assistant', 'b', { at: '2026-03-02T10:00:05', model: 'm1' }),
    entry('user', 'c', { at: '2026-03-02T14:30:00' }),
    entry('assistant', 'd', { at: '2026-03-02T14:30:05', model: 'm2' }),
    entry('user', 'e', { at: '2026-03-03T09:00:00' }),
  ])

  expect(found.map((round) => !!round.day)).toEqual([true, false, true])
  expect(found[1]?.gapHours).toBe(4)
  expect(found[1]?.model).toBe('m2')
})

test('a step is described by what it did and its target', () => {
  const [round] = buildExchanges([
    entry('assistant', [{ type: 'tool_call', id: '1', name: 'run_command', arguments: '{"command": "ls\\nrm x"}' }]),
  ])
  const step = round?.steps[0]

  expect(step?.kind === 'tool' && describeStep(step)).toMatchObject({ toolKind: 'run', target: 'ls' })
})

test('output in text blocks is joined, and a diff is known by its head', () => {
  expect(
    outputText([
      { type: 'text', text: 'a' },
      { type: 'text', text: 'b' },
    ]),
  ).toBe('a\nb')
  expect(isUnifiedDiff('--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b')).toBe(true)
  expect(isUnifiedDiff('--- not a diff')).toBe(false)
})

test('a round that is as it was before is the same object', () => {
  const said = (seq: number) =>
    ({
      seq,
      kind: 'message',
      role: 'user',
      at: '2026-11-16T08:00:00Z',
      parts: [{ type: 'text', text: 'hello' }],
    }) as unknown as Entry
  const entries = [said(1), said(2)]
  const first = buildExchanges(entries)
  const second = buildExchanges([...entries, said(3)], first)

  expect(second.map((round, place) => round === first[place])).toEqual([true, true, false])
  expect(buildExchanges([{ ...said(1), text: 'other' }, said(2)], first)[0]).not.toBe(first[0])
})

test('a question to people is part of the turn that asks it: the call keeps its result', () => {
  const record = (state: string) =>
    entry('system', state, { extra: { record: { kind: 'question', question_id: 'q', state } } })
  const found = buildExchanges([
    entry('user', 'send it'),
    entry('assistant', [{ type: 'tool_call', id: 'c1', name: 'send', arguments: {} }]),
    record('open'),
    record('answered'),
    entry('tool', [{ type: 'tool_result', call_id: 'c1', content: 'sent' }]),
    entry('assistant', 'Done.'),
  ])

  expect(found).toHaveLength(1)
  expect(found[0]?.steps.map((step) => step.kind === 'tool' && step.result?.content)).toEqual(['sent'])
  expect(found[0]?.records.map((each) => each.text)).toEqual(['open', 'answered'])
  expect(found[0]?.answers.map((each) => each.text)).toEqual(['Done.'])
  expect(found[0]?.markers).toEqual([])
})
