/** The list of sessions under the filters of the address. */
import { get, isAbort } from './api'
import { live } from './live.svelte'
import { router } from './router.svelte'
import { ORDERS, sorted, type Order } from './rows'
import { toasts } from './toasts.svelte'
import type { Head, Page } from './types'

export const SHELVES = ['chats', 'automation', 'all', 'archive', 'trash'] as const
export const FILTERS = ['shelf', 'source', 'project', 'model', 'kind', 'label', 'read_only', 'text'] as const
type Filters = Record<(typeof FILTERS)[number], string | null>

/** What fits the filters of a list and is not in it, because of its shelf. */
export interface Hidden {
  automation: number
  archive: number
  /** Whether counting stopped early: there are as many, or more. */
  isAtLeast: boolean
}

interface ListPage extends Page<Head> {
  hidden_by_shelf: { automation: number; archive: number }
  hidden_at_least: boolean
  position: number
}

const NEWS_MS = 50
const COUNT_MS = 1000
/** As many sessions as the server gives at once. */
const LARGEST_PAGE = 200

/** What a row needs; a field that is null, false, 0 or empty is left out by the server. */
const FIELDS =
  'id,source,kind,title,preview,model,project,pinned,archived,trashed,read_only,labels,last_active_at,ended_at,running,unread,parent_id,lineage,subagents,failed'

/** What a row needs besides, in an order. */
const MORE: Record<Order, string> = { activity: '', created: ',began_at', title: '', cost: ',cost_microusd' }

export function whole(head: Partial<Head>): Head {
  const nothing = {
    title: null,
    preview: null,
    model: null,
    project: null,
    ended_at: null,
    parent_id: null,
    lineage: null,
    cost_microusd: null,
  }
  const no = {
    pinned: false,
    archived: false,
    trashed: false,
    read_only: false,
    running: false,
    unread: false,
    failed: false,
  }
  return { ...nothing, ...no, labels: [], subagents: 0, ...head } as Head
}

class List {
  items = $state.raw<Head[]>([])
  pinned = $state.raw<Head[]>([])
  kids = $state.raw<Record<string, Head[]>>({})
  hidden = $state.raw<Hidden>({ automation: 0, archive: 0, isAtLeast: false })
  next = $state<string | null>(null)
  loading = $state(false)
  loaded = $state(false)
  error = $state.raw<unknown>(null)
  selected = $state.raw<Set<string>>(new Set())
  frozen = $state(false)
  private waiting: Head[] = []
  private news = new Map<string, Head>()
  private timer: ReturnType<typeof setTimeout> | undefined
  private countTimer: ReturnType<typeof setTimeout> | undefined
  private position = 0
  private heard = 0
  private asked = ''
  private abort: AbortController | null = null
  private nextPage: Promise<void> | null = null

  filters = $derived(Object.fromEntries(FILTERS.map((name) => [name, router.route.query.get(name)])) as Filters)
  isFiltered = $derived(
    FILTERS.some((name) => this.filters[name] && !(name === 'shelf' && this.filters.shelf === 'chats')),
  )
  all = $derived([...this.pinned, ...this.items.filter((head) => !this.pinned.some((each) => each.id === head.id))])
  chosen = $derived([...this.selected].map((id) => this.find(id)).filter((head): head is Head => !!head))

  get shelf(): string {
    return this.filters.shelf ?? 'chats'
  }

  get order(): Order {
    return ORDERS.find((each) => each === router.route.query.get('sort')) ?? 'activity'
  }

  /** The sources that are wanted; none means all. */
  get sources(): string[] {
    return (this.filters.source ?? '').split(',').filter(Boolean)
  }

  start(): void {
    live.listen((name, data, position) => {
      this.heard = Math.max(this.heard, position)
      // The stream began after the list was read: something may have come between.
      if (name === 'hello' && this.loaded && !this.loading && position > this.position) void this.load({ force: true })
      if (name === 'head') this.told(data as Head)
      if (name === 'gone') {
        this.news.delete((data as { id: string }).id)
        this.remove((data as { id: string }).id)
        toasts.forget((data as { id: string }).id)
      }
      if (name === 'resync') void this.load({ force: true })
    })
  }

  async load({ force = false } = {}): Promise<void> {
    const query = this.query()
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
        get<ListPage>('/sessions', { ...query, limit: 60, fields: this.fields }, signal),
        this.isFiltered
          ? { items: [] }
          : get<ListPage>('/sessions', { pinned: true, limit: 200, fields: this.fields }, signal),
      ])
      this.items = page.items.map(whole)
      this.pinned = sorted(pinned.items.map(whole), this.order)
      this.hidden = hiddenOf(page)
      this.position = page.position
      this.next = page.next
      this.loaded = true
    } catch (error) {
      if (isAbort(error)) return
      this.error = error
      this.asked = ''
    } finally {
      this.loading = false
    }
    if (this.loaded && !this.error && this.heard > this.position) await this.load({ force: true })
  }

  /** Load the next page; a call during a running load waits for that load. */
  more(limit = 100): Promise<void> {
    this.nextPage ??= this.readMore(limit).finally(() => (this.nextPage = null))
    return this.nextPage
  }

  /** Every page that is left, for as long as someone still wants the end of the list. */
  async readAll(isWanted: () => boolean): Promise<void> {
    for (let before: string | null = null; this.next && this.next !== before && isWanted();) {
      before = this.next
      await this.more(LARGEST_PAGE)
    }
  }

  private async readMore(limit: number): Promise<void> {
    if (!this.next || this.loading || this.error) return
    this.loading = true
    const asked = this.asked
    try {
      const page = await get<ListPage>('/sessions', { ...this.query(), limit, fields: this.fields, cursor: this.next })
      if (asked !== this.asked) return
      const known = new Set(this.items.map((head) => head.id))
      this.items = [...this.items, ...page.items.map(whole).filter((head) => !known.has(head.id))]
      this.next = page.next
    } catch (error) {
      this.error = error
    } finally {
      this.loading = false
    }
  }

  /** Show the subagents of a session under it, or fold them away. */
  async unfold(parent: Head): Promise<void> {
    if (this.kids[parent.id]) {
      this.kids = Object.fromEntries(Object.entries(this.kids).filter(([id]) => id !== parent.id))
      return
    }
    const page = await get<Page<Head>>(`/sessions/${parent.id}/children`)
    this.kids = {
      ...this.kids,
      [parent.id]: page.items.filter((head) => head.lineage === 'subagent' && (!head.trashed || parent.trashed)),
    }
  }

  /** What came of something that was done here: changed in place, moved to where it belongs, or gone from this shelf. */
  take(head: Head): void {
    this.news.delete(head.id)
    // Whoever brings a session back sees it at once, wherever the pointer rests.
    this.waiting = this.waiting.filter((each) => each.id !== head.id)
    this.takeAll([head], true)
  }

  /** What the stream tells is taken together: an import tells of thousands. */
  private told(head: Head): void {
    this.news.set(head.id, head)
    this.timer ??= setTimeout(() => {
      this.timer = undefined
      const heads = [...this.news.values()]
      this.news.clear()
      this.takeAll(heads)
    }, NEWS_MS)
  }

  private takeAll(heads: Head[], isOwn = false): void {
    const known = new Map(
      [...Object.values(this.kids).flat(), ...this.pinned, ...this.items].map((head) => [head.id, head]),
    )
    const fresh: Head[] = []
    for (const head of heads) {
      const old = known.get(head.id)
      // Only lists say how many subagents there are; an answer to a change does not.
      const now = { ...(old ? { subagents: old.subagents, failed: old.failed } : {}), ...head } as Head
      if (this.frozen && !old && !isOwn) this.waiting.push(now)
      else fresh.push(now)
    }
    if (heads.some((head) => !this.fits(head))) this.recount()
    if (!fresh.length) return
    this.takeKids(fresh.filter((head) => head.lineage === 'subagent' && head.parent_id && this.kids[head.parent_id]))
    this.pinned = this.placed(this.pinned, fresh, (head) => head.pinned && !this.isFiltered && this.fits(head), false)
    this.items = this.placed(this.items, fresh, (head) => this.fits(head), !!this.next)
  }

  /** Subagents whose rows are unfolded: changed, gone to the trash, or back from it. */
  private takeKids(heads: Head[]): void {
    const kids = { ...this.kids }
    for (const head of heads) {
      const family = kids[head.parent_id ?? ''] ?? []
      const isThere = family.some((each) => each.id === head.id)
      const isShown = !head.trashed || this.shelf === 'trash'
      kids[head.parent_id ?? ''] = isThere
        ? family.flatMap((each) => (each.id !== head.id ? [each] : isShown ? [head] : []))
        : isShown
          ? [...family, head]
          : family
    }
    if (heads.length) this.kids = kids
  }

  /** Recount the hidden sessions: one may have been archived or moved. */
  private recount(): void {
    if (!['chats', 'all'].includes(this.shelf)) return
    this.countTimer ??= setTimeout(() => {
      this.countTimer = undefined
      const asked = this.asked
      void get<ListPage>('/sessions', { ...this.query(), limit: 1, fields: 'id' }).then(
        (page) => {
          if (asked === this.asked) this.hidden = hiddenOf(page)
        },
        () => undefined, // the next list counts again
      )
    }, COUNT_MS)
  }

  remove(id: string): void {
    this.items = this.items.filter((head) => head.id !== id)
    this.pinned = this.pinned.filter((head) => head.id !== id)
    if (Object.values(this.kids).some((heads) => heads.some((head) => head.id === id))) {
      this.kids = Object.fromEntries(
        Object.entries(this.kids).map(([parent, heads]) => [parent, heads.filter((head) => head.id !== id)]),
      )
    }
    this.select(id, false)
  }

  /** The pointer has left the list: what waited may move now. */
  thaw(): void {
    this.frozen = false
    this.takeAll(this.waiting.splice(0))
    this.items = sorted(this.items, this.order)
  }

  find(id: string): Head | undefined {
    const same = (head: Head) => head.id === id
    return this.items.find(same) ?? this.pinned.find(same) ?? Object.values(this.kids).flat().find(same)
  }

  select(id: string, on = !this.selected.has(id)): void {
    const fresh = new Set(this.selected)
    if (on) fresh.add(id)
    else fresh.delete(id)
    this.selected = fresh
  }

  selectAll(ids: string[]): void {
    this.selected = new Set([...this.selected, ...ids])
  }

  selectNone(): void {
    this.selected = new Set()
  }

  private query(): Record<string, string | string[] | null> {
    return { ...this.filters, source: this.sources, sort: this.order === 'activity' ? null : this.order }
  }

  private get fields(): string {
    return FIELDS + MORE[this.order]
  }

  private placed(items: Head[], heads: Head[], fits: (head: Head) => boolean, more: boolean): Head[] {
    const fresh = new Map(heads.map((head) => [head.id, fits(head) ? head : null]))
    const stay = items
      .map((each) => fresh.get(each.id) ?? (fresh.has(each.id) ? null : each))
      .filter((each) => each !== null)
    const here = new Set(items.map((each) => each.id))
    const added = [...fresh.values()].filter((head) => head !== null && !here.has(head.id)) as Head[]
    if (this.frozen) return [...added, ...stay]
    const all = sorted([...added, ...stay], this.order)
    // What would come last belongs to a page that was not read yet.
    const isNew = new Set(added.map((head) => head.id))
    while (more && all.length && isNew.has(all[all.length - 1]?.id ?? '')) all.pop()
    return all
  }

  private fits(head: Head): boolean {
    const { project, model, kind, label, text, read_only } = this.filters
    const shelf = shelfOf(head)
    const onShelf = this.shelf === 'all' ? shelf === 'chats' || shelf === 'automation' : shelf === this.shelf
    if (!onShelf || (this.sources.length && !this.sources.includes(head.source.platform))) return false
    if ((project && head.project !== project) || (model && head.model !== model)) return false
    if ((kind && head.kind !== kind) || (label && !head.labels.includes(label))) return false
    if (read_only && !head.read_only) return false
    return !text || `${head.title ?? ''}\n${head.preview ?? ''}`.toLowerCase().includes(text.toLowerCase())
  }
}

function hiddenOf(page: ListPage): Hidden {
  return { ...page.hidden_by_shelf, isAtLeast: page.hidden_at_least }
}

function shelfOf(head: Head): string {
  if (head.trashed) return 'trash'
  if (head.archived) return 'archive'
  return head.kind === 'job' || head.kind === 'subagent' ? 'automation' : 'chats'
}

export const list = new List()
