/** The rows of the list as they stand one under the other: headings, projects, sessions and their kin. */
import { now as clockNow } from './now.svelte'
import { groupOf } from './time'
import type { Head, Project } from './types'

export type Row =
  | { kind: 'group'; key: string; name: string; count: number; more: boolean; closed: boolean }
  | { kind: 'project'; key: string; project: Project }
  | { kind: 'head'; key: string; head: Head; depth: number }
  | { kind: 'subagents'; key: string; head: Head; count: number; open: boolean }

/** In which order the server lists: by activity, unless the address says otherwise. */
export const ORDERS = ['activity', 'created', 'title', 'cost'] as const
export type Order = (typeof ORDERS)[number]

export interface Shown {
  pinned: Head[]
  items: Head[]
  /** The subagents of the sessions whose subagents are shown. */
  kids?: Record<string, Head[]>
  projects?: Project[]
  closed: readonly string[]
  /** Whether the server has more: the last group's count is not its last word. */
  more?: boolean
  now?: number
  order?: Order
}

const DEEPEST = 3

/** As the server sorts; those that are alike stay as they stood. */
export function sorted(items: Head[], order: Order = 'activity'): Head[] {
  const sign = order === 'title' ? 1 : -1
  const values = new Map(items.map((head) => [head.id, valueOf(head, order)]))
  const compare = (a: string | number, b: string | number) => (a === b ? 0 : a > b ? sign : -sign)
  return [...items].sort((a, b) => compare(values.get(a.id) ?? 0, values.get(b.id) ?? 0))
}

function valueOf(head: Head, order: Order): string | number {
  if (order === 'cost') return head.cost_microusd ?? 0
  if (order === 'title') return (head.title ?? head.preview ?? '').replace(/[A-Z]/g, (letter) => letter.toLowerCase())
  return order === 'created' ? head.began_at : head.last_active_at
}

export function rowsOf({
  pinned,
  items,
  kids = {},
  projects = [],
  closed,
  more = false,
  now = clockNow.at,
  order = 'activity',
}: Shown): Row[] {
  const rows: Row[] = []
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
  const groups = grouped(pinned, items, now, order)
  const last = [...groups.keys()].at(-1)
  for (const [name, heads] of groups) {
    const isClosed = closed.includes(name)
    rows.push({
      kind: 'group',
      key: `g-${name}`,
      name,
      count: heads.length,
      more: more && name === last,
      closed: isClosed,
    })
    if (!isClosed) rows.push(...family(name, heads, kids, order))
  }
  return rows
}

function grouped(pinned: Head[], items: Head[], now: number, order: Order): Map<string, Head[]> {
  const groups = new Map<string, Head[]>()
  if (pinned.length) groups.set('pinned', pinned)
  const above = new Set(pinned.map((head) => head.id))
  for (const head of items) {
    if (above.has(head.id)) continue
    const name =
      order === 'title' || order === 'cost'
        ? order
        : groupOf(order === 'created' ? head.began_at : head.last_active_at, now)
    const group = groups.get(name)
    if (group) group.push(head)
    else groups.set(name, [head])
  }
  return groups
}

/** Forks stand under what they came from when both are in the same group of time; subagents fold away. */
function family(group: string, heads: Head[], kids: Record<string, Head[]>, order: Order): Row[] {
  const here = new Set(order === 'title' || order === 'cost' ? [] : heads.map((head) => head.id))
  const forks = new Map<string, Head[]>()
  const roots: Head[] = []
  for (const head of heads) {
    const parent = head.lineage === 'fork' && head.parent_id && here.has(head.parent_id) ? head.parent_id : null
    if (parent) forks.set(parent, [...(forks.get(parent) ?? []), head])
    else roots.push(head)
  }
  const rows: Row[] = []
  const add = (head: Head, depth: number) => {
    rows.push({ kind: 'head', key: `${group}-${head.id}`, head, depth: Math.min(depth, DEEPEST) })
    const found = kids[head.id]
    if (head.subagents)
      rows.push({ kind: 'subagents', key: `${group}-a-${head.id}`, head, count: head.subagents, open: !!found })
    for (const kid of found ?? [])
      rows.push({ kind: 'head', key: `${group}-${head.id}-${kid.id}`, head: kid, depth: Math.min(depth + 1, DEEPEST) })
    for (const fork of forks.get(head.id) ?? []) add(fork, depth + 1)
  }
  for (const head of roots) add(head, 0)
  return rows
}
