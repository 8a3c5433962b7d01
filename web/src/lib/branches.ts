/** Where a conversation was taken back and went on differently: every version, in order. */
import { retracted } from './turns'
import type { Entry } from './types'

export type Stretch = readonly [first: number, last: number]

export interface Parting {
  /** The versions part after this entry. */
  after: number
  /** What was taken back, oldest first; what stands now comes after them. */
  old: Stretch[]
}

export function partings(branches: readonly Stretch[]): Parting[] {
  const by = new Map<number, Stretch[]>()
  for (const [first, last] of [...branches].sort((a, b) => a[1] - b[1])) {
    const known = by.get(first - 1) ?? []
    const before = known.at(-1)
    // A later retraction reaches over the earlier ones and their marks.
    known.push([before ? before[1] + 2 : first, last])
    by.set(first - 1, known)
  }
  return [...by]
    .map(([after, old]) => ({ after, old: old.filter(([first, last]) => first <= last) }))
    .filter((each) => each.old.length)
}

/** The parting whose versions begin with the entries from `first` on, after `before`. */
export function partingAt(all: readonly Parting[], first: number, before: number | null): Parting | null {
  const fits = ({ after, old }: Parting) => {
    const end = old.at(-1)?.[1] ?? 0
    if (old.some(([begin]) => begin === first)) return true
    return first > end && (before === null ? first - end <= 3 : before <= after)
  }
  return all.filter((each) => each.after < first).findLast(fits) ?? null
}

/** What people read of a stretch of the raw log. */
export function readable(entries: readonly Entry[], [first, last]: Stretch): Entry[] {
  const inside = entries.filter((entry) => entry.seq >= first && entry.seq <= last)
  const gone = retracted(inside)
  return inside.filter((entry) => entry.kind !== 'retraction' && !gone.has(entry.seq))
}
