/** The session that is open: its head, a window of its transcript, what is being said now. */
import { Problem, get, isAbort, send } from './api'
import { partings, readable, type Stretch } from './branches'
import { live } from './live.svelte'
import { rounds, type Round } from './turns'
import type { Detail, Entry, EntryWindow, Head, Turn } from './types'

const WINDOW = 60
const PAINT_MS = 50

interface Saying {
  turnId: string
  text: string
  thinking: string
  since: number
}

export class OpenSession {
  detail = $state.raw<Detail | null>(null)
  entries = $state.raw<Entry[]>([])
  moreBefore = $state(false)
  moreAfter = $state(false)
  loading = $state(true)
  error = $state.raw<unknown>(null)
  errorStatus = $state(0)
  /** Whether the session was deleted for good. */
  isPurged = $state(false)
  saying = $state<Saying | null>(null)
  ended = $state.raw<Turn | null>(null)
  /** The first entry that was not read when the session was opened. */
  newFrom = $state<number | null>(null)
  /** An earlier version that is looked at, instead of what stands now. */
  branch = $state.raw<{ stretch: Stretch; after: number; entries: Entry[] } | null>(null)
  partings = $derived(partings(this.detail?.branches ?? []))
  shown = $derived(
    this.branch
      ? [...this.entries.filter((entry) => entry.seq <= (this.branch?.after ?? 0)), ...this.branch.entries]
      : this.entries,
  )
  rounds = $derived.by(() => (this.drawn = rounds(this.shown, this.drawn)))
  private drawn: Round[] = []
  private stop: () => void
  private abort = new AbortController()
  private heard = 0
  /** What the stream has told since the window was last asked for. */
  private came: Entry[] = []
  private late: Entry[] = []
  private lateTimer: ReturnType<typeof setTimeout> | undefined
  private held = { text: '', thinking: '', fresh: false }
  private timer: ReturnType<typeof setTimeout> | undefined

  constructor(readonly id: string) {
    live.watch([id])
    this.stop = live.listen((name, data, position) => this.hear(name, data, position))
  }

  close(): void {
    this.stop()
    this.abort.abort()
    clearTimeout(this.timer)
    clearTimeout(this.lateTimer)
  }

  /** The end of the transcript, or a window around an entry. */
  async load(around: number | null = null): Promise<void> {
    this.loading = true
    this.error = null
    this.errorStatus = 0
    this.came = []
    try {
      const [detail, end] = await Promise.all([
        get<Detail>(`/sessions/${this.id}`, {}, this.abort.signal),
        this.window(around === null ? {} : { around }),
      ])
      let found = end
      const isBehind = detail.unread && !detail.running && around === null
      if (isBehind && detail.read_through > 0 && (end.items[0]?.seq ?? 0) > detail.read_through)
        found = await this.window({ around: detail.read_through })
      // Where nothing was read yet and more stands above, no line could say what is new.
      const isInside = !found.more_before || (found.items[0]?.seq ?? 0) <= detail.read_through
      if (!this.detail && isBehind && isInside)
        this.newFrom = found.items.find((entry) => entry.seq > detail.read_through)?.seq ?? null
      this.detail = detail
      this.entries = found.items
      this.moreBefore = found.more_before
      this.moreAfter = found.more_after
      // What the stream told while the window was read may not be in it.
      if (!this.moreAfter) this.add(this.came)
      if (detail.turn && !this.saying)
        this.saying = begun(detail.turn.id, detail.turn.partial ?? '', detail.turn.began_at)
      if (!detail.turn) this.saying = null
    } catch (error) {
      if (isAbort(error)) return
      this.error = error
      this.errorStatus = error instanceof Problem ? error.status : 0
      if (this.errorStatus === 404) {
        this.isPurged = error instanceof Problem && error.kind === 'purged'
        // What was here a moment ago offers nothing more: no restoring, no copy.
        this.detail = null
        this.entries = []
        // The stream refuses who asks for what is not there, and all tabs share it.
        live.watch([])
      }
    } finally {
      this.loading = false
    }
    await this.catchUp()
  }

  has(seq: number): boolean {
    return this.shown.some((entry) => entry.seq === seq)
  }

  async older(): Promise<void> {
    const first = this.entries[0]
    if (!first || !this.moreBefore) return
    const found = await this.window({ before: first.seq })
    // Another window may have been opened meanwhile; these do not belong before it.
    if (this.entries[0]?.seq !== first.seq) return
    this.entries = [...found.items, ...this.entries]
    this.moreBefore = found.more_before
  }

  async newer(): Promise<void> {
    const last = this.entries[this.entries.length - 1]
    if (!last || !this.moreAfter) return
    const found = await this.window({ after: last.seq })
    if (this.entries.at(-1)?.seq !== last.seq) return
    this.add(found.items)
    this.moreAfter = found.more_after
  }

  /** The beginning of the transcript, however far away it is. */
  async loadStart(): Promise<void> {
    const found = await this.window({ after: 0 })
    this.entries = found.items
    this.moreBefore = found.more_before
    this.moreAfter = found.more_after
  }

  /** Look at what was taken back, named by its last entry; null for what stands now. */
  async look(last: number | null): Promise<void> {
    if (last === null) {
      this.branch = null
      return
    }
    const parting = this.partings.find(({ old }) => old.some((stretch) => stretch[1] === last))
    const stretch = parting?.old.find((each) => each[1] === last)
    if (!parting || !stretch) return
    const query = {
      view: 'log',
      outputs: 'short',
      after: stretch[0] - 1,
      limit: Math.min(1000, stretch[1] - stretch[0] + 1),
    }
    const raw = await get<EntryWindow>(`/sessions/${this.id}/entries`, query, this.abort.signal)
    this.branch = { stretch, after: parting.after, entries: readable(raw.items, stretch) }
  }

  async refresh(): Promise<void> {
    this.detail = await get<Detail>(`/sessions/${this.id}`)
  }

  async markRead(): Promise<void> {
    const head = this.detail
    if (!head || !head.unread || this.moreAfter || this.branch) return
    await send('PATCH', `/sessions/${this.id}`, { read_through: head.last_seq }).catch(() => undefined)
  }

  private window(query: Record<string, number>): Promise<EntryWindow> {
    return get<EntryWindow>(
      `/sessions/${this.id}/entries`,
      { ...query, limit: WINDOW, outputs: 'short' },
      this.abort.signal,
    )
  }

  private hear(name: string, data: unknown, position: number): void {
    this.heard = Math.max(this.heard, position)
    if (name === 'resync') void this.load()
    else if (name === 'hello') void this.catchUp()
    else if (name === 'head') this.headChanged(data as Head)
    else if (name === 'gone' && (data as { id: string }).id === this.id) void this.load()
    else if (name === 'entry') this.entryCame(data as Entry)
    else {
      const said = data as { session_id?: string; turn_id?: string; data?: unknown }
      if (said.session_id === this.id) this.said(name, said.turn_id ?? '', said.data)
    }
  }

  /** The stream told more than was read: read on. Something may have come between the two. */
  private async catchUp(): Promise<void> {
    const last = this.entries.at(-1)?.seq
    if (!this.detail || this.loading || this.heard <= this.detail.position) return
    try {
      await this.refresh()
      if (this.moreAfter) return
      const found = await this.window(last === undefined ? {} : { after: last })
      this.add(found.items)
      this.moreAfter = found.more_after
    } catch {
      // The server is gone again; the stream says so, and when it is back it says hello.
    }
  }

  private headChanged(head: Head): void {
    if (head.id !== this.id || !this.detail) return
    const wasRunning = this.detail.running
    if (wasRunning && !head.running) this.addLate()
    this.detail = { ...this.detail, ...head }
    if (wasRunning !== head.running || this.detail.queued.length) void this.refresh().catch(() => undefined)
    if (!head.running) this.saying = null
  }

  private entryCame(entry: Entry): void {
    if (entry.session_id !== this.id || this.moreAfter) return
    if (entry.kind === 'retraction') {
      this.addLate()
      // Gone at once: what is said next must not stand beside what it replaces.
      this.entries = this.entries.filter((each) => each.seq <= (entry.after ?? 0))
      void this.load()
      return
    }
    this.came.push(entry)
    if (this.saying?.turnId !== entry.turn_id) {
      // Nobody waits for it: what others write, perhaps much of it, is drawn together.
      this.late.push(entry)
      this.lateTimer ??= setTimeout(() => this.addLate(), PAINT_MS)
      return
    }
    this.addLate()
    this.add([entry])
    if (entry.role === 'assistant') {
      this.held = { text: '', thinking: '', fresh: false }
      this.saying = { ...this.saying, text: '', thinking: '' }
    }
  }

  private addLate(): void {
    clearTimeout(this.lateTimer)
    this.lateTimer = undefined
    if (!this.moreAfter) this.add(this.late)
    this.late = []
  }

  private add(entries: Entry[]): void {
    const known = new Set(this.entries.map((entry) => entry.seq))
    const fresh = entries.filter((entry) => !known.has(entry.seq))
    if (fresh.length) this.entries = [...this.entries, ...fresh].sort((a, b) => a.seq - b.seq)
  }

  private said(name: string, turnId: string, data: unknown): void {
    if (name === 'began') this.saying = begun(turnId, '', null)
    else if (name === 'so_far') {
      this.held = { text: String(data ?? ''), thinking: '', fresh: false }
      this.saying = begun(turnId, this.held.text, this.detail?.turn?.began_at ?? null)
    } else if (name === 'delta' || name === 'thinking') this.hold(name, turnId, String(data ?? ''))
    else if (name === 'step') this.held.fresh = true
    else if (name === 'ended' || name === 'lost')
      this.finish(turnId, data as { state?: string; reason?: string } | null)
  }

  private hold(name: 'delta' | 'thinking', turnId: string, text: string): void {
    if (this.held.fresh) this.held = { text: '', thinking: '', fresh: false }
    this.held[name === 'delta' ? 'text' : 'thinking'] += text
    this.timer ??= setTimeout(() => {
      this.timer = undefined
      this.saying = {
        ...(this.saying ?? begun(turnId, '', null)),
        turnId,
        text: this.held.text,
        thinking: this.held.thinking,
      }
    }, PAINT_MS)
  }

  private finish(turnId: string, data: { state?: string; reason?: string } | null): void {
    clearTimeout(this.timer)
    this.timer = undefined
    this.held = { text: '', thinking: '', fresh: false }
    const state = data?.state ?? 'lost'
    if (state !== 'done') {
      this.ended = {
        id: turnId,
        session_id: this.id,
        state,
        agent: null,
        began_at: '',
        ended_at: new Date().toISOString(),
        first_seq: null,
        reason: data?.reason ?? null,
      }
    }
    setTimeout(() => {
      if (this.saying?.turnId === turnId) this.saying = null
    }, 300)
  }
}

function begun(turnId: string, text: string, at: string | null): Saying {
  return { turnId, text, thinking: '', since: at ? Date.parse(at) : Date.now() }
}
