/** The list of sessions under the filters of the address. */
import { explain, get, isAbort } from './api'
import { live } from './live.svelte'
import { router } from './router.svelte'
import { groupOf } from './time'
import type { Head, Page } from './types'

export const SHELVES = ['chats', 'automation', 'archive', 'trash'] as const
export const FILTERS = ['shelf', 'source', 'project', 'model', 'text'] as const

interface ListPage extends Page<Head> {
  hidden: number
}

export type Row = { kind: 'group'; key: string; name: string; count: number; closed: boolean } | { kind: 'head'; key: string; head: Head }

class List {
  items = $state.raw<Head[]>([])
  pinned = $state.raw<Head[]>([])
  hidden = $state(0)
  next = $state<string | null>(null)
  loading = $state(false)
  loaded = $state(false)
  error = $state<string | null>(null)
  selected = $state<Set<string>>(new Set())
  frozen = $state(false)
  private waiting: Head[] = []
  private asked = ''
  private abort: AbortController | null = null

  filters = $derived(Object.fromEntries(FILTERS.map((name) => [name, router.route.query.get(name)])))
  isFiltered = $derived(FILTERS.some((name) => router.route.query.get(name)))
  all = $derived([...this.pinned, ...this.items.filter((head) => !head.pinned || this.shelf !== 'chats')])

  get shelf(): string {
    return this.filters['shelf'] ?? 'chats'
  }

  start(): void {
    live.listen((name, data) => {
      if (name === 'head') this.take(data as Head)
      if (name === 'gone') this.remove((data as { id: string }).id)
      if (name === 'resync') void this.load({ force: true })
    })
  }

  async load({ force = false } = {}): Promise<void> {
    const query = this.filters
    const wanted = JSON.stringify(query)
    if (!force && wanted === this.asked) return
    this.asked = wanted
    this.abort?.abort()
    this.abort = new AbortController()
    this.loading = true
    this.error = null
    try {
      const signal = this.abort.signal
      const [page, pinned] = await Promise.all([
        get<ListPage>('/sessions', { ...query, limit: 60 }, signal),
        this.isFiltered ? { items: [] } : get<ListPage>('/sessions', { pinned: true, limit: 200 }, signal),
      ])
      this.items = page.items
      this.pinned = pinned.items
      this.hidden = page.hidden
      this.next = page.next
      this.loaded = true
    } catch (error) {
      if (isAbort(error)) return
      this.error = explain(error)
      this.asked = ''
    } finally {
      this.loading = false
    }
  }

  async more(): Promise<void> {
    if (!this.next || this.loading) return
    this.loading = true
    const asked = this.asked
    try {
      const page = await get<ListPage>('/sessions', { ...this.filters, limit: 100, cursor: this.next })
      if (asked !== this.asked) return
      const known = new Set(this.items.map((head) => head.id))
      this.items = [...this.items, ...page.items.filter((head) => !known.has(head.id))]
      this.next = page.next
    } catch (error) {
      this.error = explain(error)
    } finally {
      this.loading = false
    }
  }

  /** A head as it is now: changed in place, moved to where it belongs, or gone from this shelf. */
  take(head: Head): void {
    if (this.frozen && !this.items.some((each) => each.id === head.id)) {
      this.waiting.push(head)
      return
    }
    const isPinned = head.pinned && !this.isFiltered && this.fits(head)
    this.pinned = placed(this.pinned, head, isPinned, this.frozen)
    this.items = placed(this.items, head, this.fits(head), this.frozen)
  }

  remove(id: string): void {
    this.items = this.items.filter((head) => head.id !== id)
    this.pinned = this.pinned.filter((head) => head.id !== id)
    this.selected.delete(id)
  }

  /** The pointer has left the list: what waited may move now. */
  thaw(): void {
    this.frozen = false
    for (const head of this.waiting.splice(0)) this.take(head)
    this.items = sorted(this.items)
  }

  find(id: string): Head | undefined {
    return this.items.find((head) => head.id === id) ?? this.pinned.find((head) => head.id === id)
  }

  select(id: string, on = !this.selected.has(id)): void {
    const fresh = new Set(this.selected)
    if (on) fresh.add(id)
    else fresh.delete(id)
    this.selected = fresh
  }

  selectNone(): void {
    this.selected = new Set()
  }

  private fits(head: Head): boolean {
    const { source, project, model, text } = this.filters
    const shelf = shelfOf(head)
    if (shelf !== this.shelf || (source && head.source.platform !== source)) return false
    if ((project && head.project !== project) || (model && head.model !== model)) return false
    return !text || `${head.title ?? ''}\n${head.preview ?? ''}`.toLowerCase().includes(text.toLowerCase())
  }
}

export function shelfOf(head: Head): string {
  if (head.trashed) return 'trash'
  if (head.archived) return 'archive'
  return head.kind === 'job' || head.kind === 'subagent' ? 'automation' : 'chats'
}

function placed(items: Head[], head: Head, fits: boolean, frozen: boolean): Head[] {
  const place = items.findIndex((each) => each.id === head.id)
  if (!fits) return place < 0 ? items : items.filter((each) => each.id !== head.id)
  const fresh = place < 0 ? [head, ...items] : items.map((each) => (each.id === head.id ? head : each))
  return frozen ? fresh : sorted(fresh)
}

function sorted(items: Head[]): Head[] {
  return [...items].sort((a, b) => (a.last_active_at < b.last_active_at ? 1 : a.last_active_at > b.last_active_at ? -1 : 0))
}

/** The rows as they stand one under the other: headings and heads. */
export function rowsOf(pinned: Head[], items: Head[], closed: readonly string[], now: number = Date.now()): Row[] {
  const groups = new Map<string, Head[]>()
  if (pinned.length) groups.set('pinned', pinned)
  const above = new Set(pinned.map((head) => head.id))
  for (const head of items) {
    if (above.has(head.id)) continue
    const name = groupOf(head.last_active_at, now)
    const group = groups.get(name)
    if (group) group.push(head)
    else groups.set(name, [head])
  }
  const rows: Row[] = []
  for (const [name, heads] of groups) {
    const isClosed = closed.includes(name)
    rows.push({ kind: 'group', key: `g-${name}`, name, count: heads.length, closed: isClosed })
    if (!isClosed) for (const head of heads) rows.push({ kind: 'head', key: `${name}-${head.id}`, head })
  }
  return rows
}

export const list = new List()
