import { expect, test } from 'vitest'
import { partingAt, partings, readable } from '../src/lib/branches'
import type { Entry } from '../src/lib/types'

const said = (seq: number): Entry =>
  ({ seq, kind: 'message', role: 'user', text: String(seq), at: '2026-01-01T00:00:00Z' }) as Entry
const mark = (seq: number, after: number): Entry =>
  ({ seq, kind: 'retraction', after, at: '2026-01-01T00:00:00Z' }) as Entry

test('each time the same message is sent anew there is one more version', () => {
  // 3 and 4 were taken back (5), then 6 and 7 (8): 9 stands now.
  expect(
    partings([
      [3, 4],
      [3, 7],
    ]),
  ).toEqual([
    {
      after: 2,
      old: [
        [3, 4],
        [6, 7],
      ],
    },
  ])
})

test('taking back further leaves both partings', () => {
  expect(
    partings([
      [5, 6],
      [3, 8],
    ]),
  ).toEqual([
    { after: 4, old: [[5, 6]] },
    { after: 2, old: [[3, 8]] },
  ])
})

test('the switch stands where the versions begin', () => {
  const all = partings([
    [3, 4],
    [3, 7],
  ])

  expect(partingAt(all, 9, 2)?.after).toBe(2)
  expect(partingAt(all, 3, 2)?.after).toBe(2)
  expect(partingAt(all, 6, 2)?.after).toBe(2)
  expect(partingAt(all, 11, 9)).toBeNull()
  expect(partingAt(all, 1, null)).toBeNull()
})

test('at the edge of a window a parting far above is not taken for one here', () => {
  expect(partingAt(partings([[3, 4]]), 60, null)).toBeNull()
})

test('what was taken back inside an old version stays taken back there', () => {
  const raw = [said(3), said(4), said(5), mark(6, 3), said(7), mark(8, 2)]

  expect(readable(raw, [3, 7]).map((entry) => entry.seq)).toEqual([3, 7])
})
