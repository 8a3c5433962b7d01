import { expect, test } from 'vitest'
import { branchPointAt, findBranchPoints, readableEntries } from '../src/lib/transcript/branches'
import type { Entry } from '../src/lib/api/types'

const said = (seq: number): Entry =>
  ({ seq, kind: 'message', role: 'user', text: String(seq), at: '2026-01-01T00:00:00Z' }) as Entry
const mark = (seq: number, after: number): Entry =>
  ({ seq, kind: 'retraction', after, at: '2026-01-01T00:00:00Z' }) as Entry

test('each time the same message is sent anew there is one more version', () => {
  // 3 and 4 were retracted by 5, then 6 and 7 by 8; 9 is current.
  expect(
    findBranchPoints([
      [3, 4],
      [3, 7],
    ]),
  ).toEqual([
    {
      after: 2,
      replaced: [
        [3, 4],
        [6, 7],
      ],
    },
  ])
})

test('taking back further leaves both partings', () => {
  expect(
    findBranchPoints([
      [5, 6],
      [3, 8],
    ]),
  ).toEqual([
    { after: 4, replaced: [[5, 6]] },
    { after: 2, replaced: [[3, 8]] },
  ])
})

test('the switch stands where the versions begin', () => {
  const all = findBranchPoints([
    [3, 4],
    [3, 7],
  ])

  expect(branchPointAt(all, 9, 2)?.after).toBe(2)
  expect(branchPointAt(all, 3, 2)?.after).toBe(2)
  expect(branchPointAt(all, 6, 2)?.after).toBe(2)
  expect(branchPointAt(all, 11, 9)).toBeNull()
  expect(branchPointAt(all, 1, null)).toBeNull()
})

test('at the edge of a window a branchPoint far above is not taken for one here', () => {
  expect(branchPointAt(findBranchPoints([[3, 4]]), 60, null)).toBeNull()
})

test('what was taken back inside an replaced version stays taken back there', () => {
  const raw = [said(3), said(4), said(5), mark(6, 3), said(7), mark(8, 2)]

  expect(readableEntries(raw, [3, 7]).map((entry) => entry.seq)).toEqual([3, 7])
})
