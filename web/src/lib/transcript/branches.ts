/** Versions of a conversation: where messages were retracted and it continued differently. */
import { retracted } from './exchanges'
import type { Entry } from '../api/types'

export type SeqRange = readonly [first: number, last: number]

export interface BranchPoint {
  /** The seq of the last entry that all versions share. */
  after: number
  /** The retracted versions, oldest first; the current one follows them. */
  replaced: SeqRange[]
}

export function findBranchPoints(branches: readonly SeqRange[]): BranchPoint[] {
  const by = new Map<number, SeqRange[]>()
  for (const [first, last] of [...branches].sort((a, b) => a[1] - b[1])) {
    const known = by.get(first - 1) ?? []
    const before = known.at(-1)
    // A later retraction also covers the earlier versions and their retraction entries.
    known.push([before ? before[1] + 2 : first, last])
    by.set(first - 1, known)
  }
  return [...by]
    .map(([after, replaced]) => ({ after, replaced: replaced.filter(([first, last]) => first <= last) }))
    .filter((each) => each.replaced.length)
}

/** The branch point whose versions begin at `first`; `before` is the last entry above it. */
export function branchPointAt(all: readonly BranchPoint[], first: number, before: number | null): BranchPoint | null {
  const fits = ({ after, replaced }: BranchPoint) => {
    const end = replaced.at(-1)?.[1] ?? 0
    if (replaced.some(([begin]) => begin === first)) return true
    return first > end && (before === null ? first - end <= 3 : before <= after)
  }
  return all.filter((each) => each.after < first).findLast(fits) ?? null
}

/** The entries of a range of the raw log that a reader sees. */
export function readableEntries(entries: readonly Entry[], [first, last]: SeqRange): Entry[] {
  const inside = entries.filter((entry) => entry.seq >= first && entry.seq <= last)
  const gone = retracted(inside)
  return inside.filter((entry) => entry.kind !== 'retraction' && !gone.has(entry.seq))
}
