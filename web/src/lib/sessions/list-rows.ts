/** Builds the rows of the session list: group headings, projects, sessions, forks and subagents. */
import { clock } from '../clock.svelte'
import { ageGroup } from '../format'
import type { ListedSession, ProjectInfo } from '../api/schema'

export type ListRow =
  | { kind: 'group'; key: string; name: string; count: number; more: boolean; closed: boolean }
  | { kind: 'project'; key: string; project: ProjectInfo }
  | { kind: 'session'; key: string; summary: ListedSession; depth: number }
  | { kind: 'subagents'; key: string; summary: ListedSession; count: number; open: boolean }

/** The sort orders of the server; activity is the default. */
export const SORT_ORDERS = ['activity', 'created', 'title', 'cost'] as const
export type SortOrder = (typeof SORT_ORDERS)[number]

export interface ListContent {
  pinned: ListedSession[]
  items: ListedSession[]
  /** The visible subagents, by the id of their parent session. */
  subagentsOf?: Record<string, ListedSession[]>
  projects?: ProjectInfo[]
  closed: readonly string[]
  /** Whether the server has more pages, so that the last group is incomplete. */
  more?: boolean
  now?: number
  order?: SortOrder
}

const MAX_DEPTH = 3

/** Sort sessions like the server does; equal ones keep their order. */
export function sorted(items: ListedSession[], order: SortOrder = 'activity'): ListedSession[] {
  const sign = order === 'title' ? 1 : -1
  const values = new Map(items.map((summary) => [summary.id, sortValue(summary, order)]))
  const compare = (a: string | number, b: string | number) => (a === b ? 0 : a > b ? sign : -sign)
  return [...items].sort((a, b) => compare(values.get(a.id) ?? 0, values.get(b.id) ?? 0))
}

function sortValue(summary: ListedSession, order: SortOrder): string | number {
  if (order === 'cost') return summary.cost_microusd ?? 0
  if (order === 'title')
    return (summary.title ?? summary.preview ?? '').replace(/[A-Z]/g, (letter) => letter.toLowerCase())
  return order === 'created' ? summary.began_at : summary.last_active_at
}

export function buildRows({
  pinned,
  items,
  subagentsOf = {},
  projects = [],
  closed,
  more = false,
  now = clock.now,
  order = 'activity',
}: ListContent): ListRow[] {
  const rows: ListRow[] = []
  if (projects.length) {
    const isClosed = closed.includes('projects')
    rows.push({
      kind: 'group',
      key: 'g-projects',
      name: 'projects',
      count: projects.length,
      more: false,
      closed: isClosed,
    })
    if (!isClosed) for (const project of projects) rows.push({ kind: 'project', key: `p-${project.id}`, project })
  }
  const groups = groupSessions(pinned, items, now, order)
  const last = [...groups.keys()].at(-1)
  for (const [name, summaries] of groups) {
    const isClosed = closed.includes(name)
    rows.push({
      kind: 'group',
      key: `g-${name}`,
      name,
      count: summaries.length,
      more: more && name === last,
      closed: isClosed,
    })
    if (!isClosed) rows.push(...rowsWithForks(name, summaries, subagentsOf, order))
  }
  return rows
}

function groupSessions(
  pinned: ListedSession[],
  items: ListedSession[],
  now: number,
  order: SortOrder,
): Map<string, ListedSession[]> {
  const groups = new Map<string, ListedSession[]>()
  if (pinned.length) groups.set('pinned', pinned)
  const above = new Set(pinned.map((summary) => summary.id))
  for (const summary of items) {
    if (above.has(summary.id)) continue
    const name =
      order === 'title' || order === 'cost'
        ? order
        : ageGroup(order === 'created' ? summary.began_at : summary.last_active_at, now)
    const group = groups.get(name)
    if (group) group.push(summary)
    else groups.set(name, [summary])
  }
  return groups
}

/** Forks are shown below their parent if both are in the same group; subagents can be hidden. */
function rowsWithForks(
  group: string,
  summaries: ListedSession[],
  subagentsOf: Record<string, ListedSession[]>,
  order: SortOrder,
): ListRow[] {
  const here = new Set(order === 'title' || order === 'cost' ? [] : summaries.map((summary) => summary.id))
  const forks = new Map<string, ListedSession[]>()
  const roots: ListedSession[] = []
  for (const summary of summaries) {
    const parent =
      summary.lineage === 'fork' && summary.parent_id && here.has(summary.parent_id) ? summary.parent_id : null
    if (parent) forks.set(parent, [...(forks.get(parent) ?? []), summary])
    else roots.push(summary)
  }
  const rows: ListRow[] = []
  const add = (summary: ListedSession, depth: number) => {
    rows.push({ kind: 'session', key: `${group}-${summary.id}`, summary, depth: Math.min(depth, MAX_DEPTH) })
    const found = subagentsOf[summary.id]
    if (summary.subagents)
      rows.push({
        kind: 'subagents',
        key: `${group}-a-${summary.id}`,
        summary,
        count: summary.subagents,
        open: !!found,
      })
    for (const kid of found ?? [])
      rows.push({
        kind: 'session',
        key: `${group}-${summary.id}-${kid.id}`,
        summary: kid,
        depth: Math.min(depth + 1, MAX_DEPTH),
      })
    for (const fork of forks.get(summary.id) ?? []) add(fork, depth + 1)
  }
  for (const summary of roots) add(summary, 0)
  return rows
}
