/** The list of sessions that match the filters in the address. */
import { get, isAbort } from '../api/http'
import { live } from '../live/live.svelte'
import { router } from '../ui/router.svelte'
import { SORT_ORDERS, sorted, type SortOrder } from './list-rows'
import { toasts } from '../ui/toasts.svelte'
import type { ChildrenPage, ListedSession, SessionRowPage } from '../api/schema'

export const FOLDERS = ['chats', 'automation', 'all', 'archive', 'trash'] as const
export const FILTERS = ['folder', 'source', 'project', 'model', 'kind', 'label', 'read_only', 'text'] as const
type Filters = Record<(typeof FILTERS)[number], string | null>

/** The number of sessions that match the filters but are in another folder. */
export interface Hidden {
  automation: number
  archive: number
  /** Whether the server stopped counting: there may be more. */
  isAtLeast: boolean
}

/** The server omits fields that are null, false, 0 or empty: a row reads them as such. */
type ListPage = Omit<SessionRowPage, 'items'> & { items: ListedSession[] }

const UPDATE_MS = 50
const COUNT_MS = 1000
/** The most sessions that the server returns at once. */
const MAX_PAGE_SIZE = 200

/** The fields that a row needs. The server omits fields that are null, false, 0 or empty. */
const FIELDS =
  'id,source,kind,title,preview,model,project,pinned,archived,trashed,read_only,labels,last_active_at,ended_at,running,waiting,waits_for_people,unread,parent_id,lineage,subagents,failed'

/** More fields that a row needs, by sort order. */
const FIELDS_BY_ORDER: Record<SortOrder, string> = {
  activity: '',
  created: ',began_at',
  title: '',
  cost: ',cost_microusd',
}

export function withDefaults(summary: Partial<ListedSession>): ListedSession {
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
  return { ...nothing, ...no, labels: [], subagents: 0, ...summary } as ListedSession
}

class SessionListStore {
  items = $state.raw<ListedSession[]>([])
  pinned = $state.raw<ListedSession[]>([])
  subagentsOf = $state.raw<Record<string, ListedSession[]>>({})
  /** Whether a question is open in any session, loaded or not. */
  asks = $state(false)
  hidden = $state.raw<Hidden>({ automation: 0, archive: 0, isAtLeast: false })
  next = $state<string | null>(null)
  loading = $state(false)
  loaded = $state(false)
  error = $state.raw<unknown>(null)
  selected = $state.raw<Set<string>>(new Set())
  frozen = $state(false)
  private deferred: ListedSession[] = []
  private updates = new Map<string, ListedSession>()
  private timer: ReturnType<typeof setTimeout> | undefined
  private countTimer: ReturnType<typeof setTimeout> | undefined
  private position = 0
  private lastHeard = 0
  private loadedQuery = ''
  private abort: AbortController | null = null
  private nextPage: Promise<void> | null = null

  filters = $derived(Object.fromEntries(FILTERS.map((name) => [name, router.route.query.get(name)])) as Filters)
  isFiltered = $derived(
    FILTERS.some((name) => this.filters[name] && !(name === 'folder' && this.filters.folder === 'chats')),
  )
  all = $derived([
    ...this.pinned,
    ...this.items.filter((summary) => !this.pinned.some((each) => each.id === summary.id)),
  ])
  selectedSessions = $derived(
    [...this.selected].map((id) => this.find(id)).filter((summary): summary is ListedSession => !!summary),
  )

  get folder(): string {
    return this.filters.folder ?? 'chats'
  }

  get order(): SortOrder {
    return SORT_ORDERS.find((each) => each === router.route.query.get('sort')) ?? 'activity'
  }

  /** The selected sources; empty means all. */
  get sources(): string[] {
    return (this.filters.source ?? '').split(',').filter(Boolean)
  }

  start(): void {
    live.listen((name, data, position) => {
      // Nobody writes that a process has died: what was running before the connection was lost may be waiting now.
      const isDoubtful = this.lastHeard > 0 && this.all.some((summary) => summary.running)
      this.lastHeard = Math.max(this.lastHeard, position)
      // The stream began after the list was loaded: events in between are missing.
      if (name === 'hello' && this.loaded && !this.loading && (position > this.position || isDoubtful))
        void this.load({ force: true })
      if (name === 'head') this.queueUpdate(data as ListedSession)
      if (name === 'gone') {
        this.updates.delete((data as { id: string }).id)
        this.remove((data as { id: string }).id)
        toasts.dropUndoFor((data as { id: string }).id)
      }
      if (name === 'resync') void this.load({ force: true })
    })
  }

  async load({ force = false } = {}): Promise<void> {
    const query = this.query()
    const queryKey = JSON.stringify(query)
    if (!force && queryKey === this.loadedQuery) return
    this.loadedQuery = queryKey
    this.abort?.abort()
    this.abort = new AbortController()
    this.loading = true
    this.error = null
    try {
      const signal = this.abort.signal
      const [page, pinned] = await Promise.all([
        get<ListPage>('/session-rows', { ...query, limit: 60, fields: this.fields }, signal),
        this.isFiltered
          ? { items: [] }
          : get<ListPage>('/session-rows', { pinned: true, limit: 200, fields: this.fields }, signal),
      ])
      this.items = page.items.map(withDefaults)
      this.pinned = sorted(pinned.items.map(withDefaults), this.order)
      this.hidden = hiddenCounts(page)
      this.asks = page.open_questions
      this.position = page.position
      this.next = page.next
      this.loaded = true
    } catch (error) {
      if (isAbort(error)) return
      this.error = error
      this.loadedQuery = ''
    } finally {
      this.loading = false
    }
    if (this.loaded && !this.error && this.lastHeard > this.position) await this.load({ force: true })
  }

  /** Load the next page; a call during a running load waits for that load. */
  more(limit = 100): Promise<void> {
    this.nextPage ??= this.loadNextPage(limit).finally(() => (this.nextPage = null))
    return this.nextPage
  }

  /** Load all remaining pages, as long as `isWanted` returns true. */
  async loadAll(isWanted: () => boolean): Promise<void> {
    for (let before: string | null = null; this.next && this.next !== before && isWanted();) {
      before = this.next
      await this.more(MAX_PAGE_SIZE)
    }
  }

  private async loadNextPage(limit: number): Promise<void> {
    if (!this.next || this.loading || this.error) return
    this.loading = true
    const loadedQuery = this.loadedQuery
    try {
      const page = await get<ListPage>('/session-rows', {
        ...this.query(),
        limit,
        fields: this.fields,
        cursor: this.next,
      })
      if (loadedQuery !== this.loadedQuery) return
      const known = new Set(this.items.map((summary) => summary.id))
      this.items = [...this.items, ...page.items.map(withDefaults).filter((summary) => !known.has(summary.id))]
      this.next = page.next
    } catch (error) {
      this.error = error
    } finally {
      this.loading = false
    }
  }

  /** Show the subagents of a session below it, or hide them. */
  async toggleSubagents(parent: ListedSession): Promise<void> {
    if (this.subagentsOf[parent.id]) {
      this.subagentsOf = Object.fromEntries(Object.entries(this.subagentsOf).filter(([id]) => id !== parent.id))
      return
    }
    const page = await get<ChildrenPage>(`/sessions/${parent.id}/children`)
    this.subagentsOf = {
      ...this.subagentsOf,
      [parent.id]: page.items.filter(
        (summary) => summary.lineage === 'subagent' && (!summary.trashed || parent.trashed),
      ),
    }
  }

  /** Apply a change that was made in this tab: update, move or remove the session's row. */
  apply(summary: ListedSession): void {
    this.updates.delete(summary.id)
    // A session that someone restores appears at once, even while the list is frozen.
    this.deferred = this.deferred.filter((each) => each.id !== summary.id)
    this.applyAll([summary], true)
  }

  /** Collect updates of the stream and apply them together: an import sends thousands. */
  private queueUpdate(summary: ListedSession): void {
    this.updates.set(summary.id, summary)
    this.timer ??= setTimeout(() => {
      this.timer = undefined
      const summaries = [...this.updates.values()]
      this.updates.clear()
      this.applyAll(summaries)
    }, UPDATE_MS)
  }

  private applyAll(summaries: ListedSession[], isOwn = false): void {
    const known = new Map(
      [...Object.values(this.subagentsOf).flat(), ...this.pinned, ...this.items].map((summary) => [
        summary.id,
        summary,
      ]),
    )
    const changed: ListedSession[] = []
    for (const summary of summaries) {
      const old = known.get(summary.id)
      // Only the list endpoint returns the number of subagents.
      const now = { ...(old ? { subagents: old.subagents, failed: old.failed } : {}), ...summary } as ListedSession
      if (this.frozen && !old && !isOwn) this.deferred.push(now)
      else changed.push(now)
    }
    if (summaries.some((summary) => !this.matches(summary))) this.recount()
    if (!changed.length) return
    this.applySubagents(
      changed.filter(
        (summary) => summary.lineage === 'subagent' && summary.parent_id && this.subagentsOf[summary.parent_id],
      ),
    )
    this.pinned = this.merged(
      this.pinned,
      changed,
      (summary) => summary.pinned && !this.isFiltered && this.matches(summary),
      false,
    )
    this.items = this.merged(this.items, changed, (summary) => this.matches(summary), !!this.next)
  }

  /** Update, add or remove rows of visible subagents. */
  private applySubagents(summaries: ListedSession[]): void {
    const subagentsOf = { ...this.subagentsOf }
    for (const summary of summaries) {
      const family = subagentsOf[summary.parent_id ?? ''] ?? []
      const isThere = family.some((each) => each.id === summary.id)
      const isShown = !summary.trashed || this.folder === 'trash'
      subagentsOf[summary.parent_id ?? ''] = isThere
        ? family.flatMap((each) => (each.id !== summary.id ? [each] : isShown ? [summary] : []))
        : isShown
          ? [...family, summary]
          : family
    }
    if (summaries.length) this.subagentsOf = subagentsOf
  }

  /** Reload the number of hidden sessions: one may have been archived or moved. */
  private recount(): void {
    if (!['chats', 'all'].includes(this.folder)) return
    this.countTimer ??= setTimeout(() => {
      this.countTimer = undefined
      const loadedQuery = this.loadedQuery
      void get<ListPage>('/session-rows', { ...this.query(), limit: 1, fields: 'id' }).then(
        (page) => {
          if (loadedQuery === this.loadedQuery) this.hidden = hiddenCounts(page)
        },
        () => undefined, // the next list counts again
      )
    }, COUNT_MS)
  }

  remove(id: string): void {
    this.items = this.items.filter((summary) => summary.id !== id)
    this.pinned = this.pinned.filter((summary) => summary.id !== id)
    if (Object.values(this.subagentsOf).some((summaries) => summaries.some((summary) => summary.id === id))) {
      this.subagentsOf = Object.fromEntries(
        Object.entries(this.subagentsOf).map(([parent, summaries]) => [
          parent,
          summaries.filter((summary) => summary.id !== id),
        ]),
      )
    }
    this.select(id, false)
  }

  /** The pointer has left the list: apply what was deferred. */
  unfreeze(): void {
    this.frozen = false
    this.applyAll(this.deferred.splice(0))
    this.items = sorted(this.items, this.order)
  }

  find(id: string): ListedSession | undefined {
    const same = (summary: ListedSession) => summary.id === id
    return this.items.find(same) ?? this.pinned.find(same) ?? Object.values(this.subagentsOf).flat().find(same)
  }

  select(id: string, on = !this.selected.has(id)): void {
    const changed = new Set(this.selected)
    if (on) changed.add(id)
    else changed.delete(id)
    this.selected = changed
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
    return FIELDS + FIELDS_BY_ORDER[this.order]
  }

  private merged(
    items: ListedSession[],
    summaries: ListedSession[],
    matches: (summary: ListedSession) => boolean,
    more: boolean,
  ): ListedSession[] {
    const changed = new Map(summaries.map((summary) => [summary.id, matches(summary) ? summary : null]))
    const stay = items
      .map((each) => changed.get(each.id) ?? (changed.has(each.id) ? null : each))
      .filter((each) => each !== null)
    const here = new Set(items.map((each) => each.id))
    const added = [...changed.values()].filter(
      (summary) => summary !== null && !here.has(summary.id),
    ) as ListedSession[]
    if (this.frozen) return [...added, ...stay]
    const all = sorted([...added, ...stay], this.order)
    // Sessions that sort last belong to a page that is not loaded yet.
    const isNew = new Set(added.map((summary) => summary.id))
    while (more && all.length && isNew.has(all[all.length - 1]?.id ?? '')) all.pop()
    return all
  }

  private matches(summary: ListedSession): boolean {
    const { project, model, kind, label, text, read_only } = this.filters
    const folder = folderOf(summary)
    const isInFolder = this.folder === 'all' ? folder === 'chats' || folder === 'automation' : folder === this.folder
    if (!isInFolder || (this.sources.length && !this.sources.includes(summary.source.platform))) return false
    if ((project && summary.project !== project) || (model && summary.model !== model)) return false
    if ((kind && summary.kind !== kind) || (label && !summary.labels.includes(label))) return false
    if (read_only && !summary.read_only) return false
    return !text || `${summary.title ?? ''}\n${summary.preview ?? ''}`.toLowerCase().includes(text.toLowerCase())
  }
}

function hiddenCounts(page: ListPage): Hidden {
  return { ...page.hidden_by_folder, isAtLeast: page.hidden_at_least }
}

function folderOf(summary: ListedSession): string {
  if (summary.trashed) return 'trash'
  if (summary.archived) return 'archive'
  return summary.kind === 'job' || summary.kind === 'subagent' ? 'automation' : 'chats'
}

export const sessionList = new SessionListStore()
