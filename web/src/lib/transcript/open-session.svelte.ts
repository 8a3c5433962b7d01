/** The open session: its details, the loaded part of its transcript, and the reply that is being written. */
import { ApiError, get, isAbort, send } from '../api/http'
import { findBranchPoints, readableEntries, type SeqRange } from './branches'
import { live } from '../live/live.svelte'
import { buildExchanges, recordOf, type Exchange } from './exchanges'
import { reasonText } from './records'
import type { ContextInfo, EntryPage, ListedSession, PinPage, SessionDetail } from '../api/schema'
import type { Entry } from '../api/types'

const WINDOW_SIZE = 60
const RENDER_MS = 50
/** A turn of which nothing is heard for this long may have lost its process. */
const SILENT_MS = 15_000

interface LiveReply {
  turnId: string
  text: string
  thinking: string
  startedAt: number
}

export class OpenSession {
  detail = $state.raw<SessionDetail | null>(null)
  entries = $state.raw<Entry[]>([])
  moreBefore = $state(false)
  moreAfter = $state(false)
  loading = $state(true)
  error = $state.raw<unknown>(null)
  errorStatus = $state(0)
  /** Whether the session was deleted permanently. */
  isPurged = $state(false)
  liveReply = $state<LiveReply | null>(null)
  endedTurn = $state.raw<{ reason: string | null } | null>(null)
  /** The first entry that was unread when the session was opened. */
  firstUnreadSeq = $state<number | null>(null)
  /** The earlier version that is shown instead of the current one. */
  branch = $state.raw<{ range: SeqRange; after: number; entries: Entry[] } | null>(null)
  /** How large the model's context is; null until it was asked for. */
  context = $state.raw<ContextInfo | null>(null)
  pinnedSeqs: ReadonlySet<number> = $derived(new Set(this.detail?.pins.map((pin) => pin.seq)))
  /** Whether the running turn has lost its process: another one continues it. */
  isWaiting = $derived(!!this.liveReply && this.detail?.turn?.id === this.liveReply.turnId && this.detail.turn.waiting)
  /** Whether the turn has asked people something. */
  isAsking = $derived(
    !!this.detail?.waits_for_people ||
      this.entries.some((entry) => recordOf(entry)?.question_id && entry.turn_id === this.detail?.turn?.id),
  )
  waitReason = $derived(reasonText(this.detail?.turn?.resume_reason ?? ''))
  branchPoints = $derived(findBranchPoints(this.detail?.branches ?? []))
  visibleEntries = $derived(
    this.branch
      ? [...this.entries.filter((entry) => entry.seq <= (this.branch?.after ?? 0)), ...this.branch.entries]
      : this.entries,
  )
  exchanges = $derived.by(() => (this.lastExchanges = buildExchanges(this.visibleEntries, this.lastExchanges)))
  private lastExchanges: Exchange[] = []
  private stopListening: () => void
  private abort = new AbortController()
  private lastHeard = 0
  /** Entries that the stream sent after the last request for a window began. */
  private received: Entry[] = []
  private deferred: Entry[] = []
  private deferredTimer: ReturnType<typeof setTimeout> | undefined
  private buffer = { text: '', thinking: '', isNewStep: false }
  private timer: ReturnType<typeof setTimeout> | undefined
  /** Turns whose end is known. The stream may send the end of a turn before the last text of its reply. */
  private endedTurns = new Set<string>()
  private lastTurnEvent = 0
  private silenceTimer = setInterval(() => this.checkSilence(), SILENT_MS)

  constructor(readonly id: string) {
    live.watch([id])
    this.stopListening = live.listen((name, data, position) => this.handleEvent(name, data, position))
  }

  close(): void {
    this.stopListening()
    this.abort.abort()
    clearTimeout(this.timer)
    clearTimeout(this.deferredTimer)
    clearInterval(this.silenceTimer)
  }

  /** Load the end of the transcript, or a window around an entry. */
  async load(around: number | null = null): Promise<void> {
    this.loading = true
    this.error = null
    this.errorStatus = 0
    this.received = []
    try {
      const [detail, end] = await Promise.all([
        get<SessionDetail>(`/sessions/${this.id}`, {}, this.abort.signal),
        this.fetchWindow(around === null ? {} : { around }),
      ])
      let found = end
      const isBehind = detail.unread && !detail.running && around === null
      if (isBehind && detail.read_through > 0 && (end.items[0]?.seq ?? 0) > detail.read_through)
        found = await this.fetchWindow({ around: detail.read_through })
      // A divider above the first unread entry makes sense only if that entry is inside the window.
      const isInside = !found.more_before || (found.items[0]?.seq ?? 0) <= detail.read_through
      if (!this.detail && isBehind && isInside)
        this.firstUnreadSeq = found.items.find((entry) => entry.seq > detail.read_through)?.seq ?? null
      this.detail = detail
      this.entries = found.items
      this.moreBefore = found.more_before
      this.moreAfter = found.more_after
      // Entries that the stream sent during the request may be missing from the answer.
      if (!this.moreAfter) this.add(this.received)
      this.noteEndedTurns(detail)
      const turn = detail.turn
      if (!turn) this.liveReply = null
      else if (!this.liveReply && !this.endedTurns.has(turn.id)) {
        // The entries may be newer than the details, and contain what was unfinished then.
        const isStored = this.entries.some(
          (entry) => entry.turn_id === turn.id && entry.role === 'assistant' && entry.seq > detail.last_seq,
        )
        this.liveReply = startReply(turn.id, isStored ? '' : (turn.partial ?? ''), turn.began_at)
      }
    } catch (error) {
      if (isAbort(error)) return
      this.error = error
      this.errorStatus = error instanceof ApiError ? error.status : 0
      if (this.errorStatus === 404) {
        this.isPurged = error instanceof ApiError && error.kind === 'purged'
        // Offer nothing for a session that no longer exists.
        this.detail = null
        this.entries = []
        // The stream, which all tabs share, rejects topics of missing sessions.
        live.watch([])
      }
    } finally {
      this.loading = false
    }
    await this.catchUp()
  }

  has(seq: number): boolean {
    return this.visibleEntries.some((entry) => entry.seq === seq)
  }

  async loadOlder(): Promise<void> {
    const first = this.entries[0]
    if (!first || !this.moreBefore) return
    const found = await this.fetchWindow({ before: first.seq })
    // Another window may have been loaded meanwhile; these entries do not belong above it.
    if (this.entries[0]?.seq !== first.seq) return
    this.entries = [...found.items, ...this.entries]
    this.moreBefore = found.more_before
  }

  async loadNewer(): Promise<void> {
    const last = this.entries[this.entries.length - 1]
    if (!last || !this.moreAfter) return
    const found = await this.fetchWindow({ after: last.seq })
    if (this.entries.at(-1)?.seq !== last.seq) return
    this.add(found.items)
    this.moreAfter = found.more_after
  }

  /** Load the beginning of the transcript. */
  async loadStart(): Promise<void> {
    const found = await this.fetchWindow({ after: 0 })
    this.entries = found.items
    this.moreBefore = found.more_before
    this.moreAfter = found.more_after
  }

  /** Show a retracted version, identified by its last entry, or the current one for null. */
  async showBranch(last: number | null): Promise<void> {
    if (last === null) {
      this.branch = null
      return
    }
    const branchPoint = this.branchPoints.find(({ replaced }) => replaced.some((range) => range[1] === last))
    const range = branchPoint?.replaced.find((each) => each[1] === last)
    if (!branchPoint || !range) return
    const query = {
      view: 'log',
      outputs: 'short',
      after: range[0] - 1,
      limit: Math.min(1000, range[1] - range[0] + 1),
    }
    const raw = await get<EntryPage>(`/sessions/${this.id}/entries`, query, this.abort.signal)
    this.branch = { range, after: branchPoint.after, entries: readableEntries(raw.items, range) }
  }

  async refresh(): Promise<void> {
    this.detail = await get<SessionDetail>(`/sessions/${this.id}`)
    this.noteEndedTurns(this.detail)
  }

  async loadContext(): Promise<void> {
    this.context = await get<ContextInfo>(`/sessions/${this.id}/context`, {}, this.abort.signal)
  }

  /** Pin a message, so that the model reads it also after a compaction, or unpin it. */
  async pin(seq: number, pinned: boolean): Promise<void> {
    const page = await send<PinPage>(pinned ? 'POST' : 'DELETE', `/sessions/${this.id}/pins/${seq}`)
    if (this.detail) this.detail = { ...this.detail, pins: page.items }
  }

  /** Ask what became of a turn of which nothing was heard for long. */
  private checkSilence(): void {
    if (this.liveReply && !this.detail?.waits_for_people && Date.now() - this.lastTurnEvent >= SILENT_MS)
      void this.refresh().catch(() => undefined)
  }

  async markRead(): Promise<void> {
    const summary = this.detail
    if (!summary || !summary.unread || this.moreAfter || this.branch) return
    await send('PATCH', `/sessions/${this.id}`, { read_through: summary.last_seq }).catch(() => undefined)
  }

  private fetchWindow(query: Record<string, number>): Promise<EntryPage> {
    return get<EntryPage>(
      `/sessions/${this.id}/entries`,
      { ...query, limit: WINDOW_SIZE, outputs: 'short' },
      this.abort.signal,
    )
  }

  private handleEvent(name: string, data: unknown, position: number): void {
    this.lastHeard = Math.max(this.lastHeard, position)
    if (name === 'resync') void this.load()
    else if (name === 'hello') void this.catchUp()
    else if (name === 'head') this.summaryChanged(data as ListedSession)
    else if (name === 'gone' && (data as { id: string }).id === this.id) void this.load()
    else if (name === 'entry') this.entryReceived(data as Entry)
    else {
      const handleTurnEvent = data as { session_id?: string; turn_id?: string; data?: unknown }
      if (handleTurnEvent.session_id === this.id)
        this.handleTurnEvent(name, handleTurnEvent.turn_id ?? '', handleTurnEvent.data)
    }
  }

  /** Load what came between the last request and the beginning of the stream. */
  private async catchUp(): Promise<void> {
    const last = this.entries.at(-1)?.seq
    if (!this.detail || this.loading || this.lastHeard <= this.detail.position) return
    try {
      await this.refresh()
      if (this.moreAfter) return
      const found = await this.fetchWindow(last === undefined ? {} : { after: last })
      this.add(found.items)
      this.moreAfter = found.more_after
      this.noteEndedTurns(this.detail)
    } catch {
      // The server is unreachable again; the next `hello` of the stream starts this again.
    }
  }

  private summaryChanged(summary: ListedSession): void {
    if (summary.id !== this.id || !this.detail) return
    const wasRunning = this.detail.running
    if (wasRunning && !summary.running) this.addDeferred()
    const known = { ...this.detail }
    // A summary has these only where they differ from the default.
    delete known.waiting
    delete known.waits_for_people
    delete known.tools
    this.detail = { ...known, ...summary }
    if (wasRunning !== summary.running || this.detail.queued.length) void this.refresh().catch(() => undefined)
    this.noteEndedTurns(summary)
    if (!summary.running) this.dropReply()
  }

  /** If no turn was running when the summary was read, the turns of all entries up to then have ended. */
  private noteEndedTurns(summary: ListedSession): void {
    if (summary.running) return
    for (const entry of [...this.entries, ...this.deferred])
      if (entry.turn_id && entry.seq <= summary.last_seq) this.endedTurns.add(entry.turn_id)
    if (this.liveReply && this.endedTurns.has(this.liveReply.turnId)) this.dropReply()
  }

  private dropReply(): void {
    this.dropBuffer()
    this.liveReply = null
  }

  private dropBuffer(): void {
    clearTimeout(this.timer)
    this.timer = undefined
    this.buffer = { text: '', thinking: '', isNewStep: false }
  }

  private entryReceived(entry: Entry): void {
    if (entry.session_id !== this.id || this.moreAfter) return
    if (entry.kind === 'retraction') {
      this.addDeferred()
      // Remove the retracted entries at once: their replacement must not appear beside them.
      this.entries = this.entries.filter((each) => each.seq <= (entry.after ?? 0))
      void this.load()
      return
    }
    if (recordOf(entry)) void this.refresh().catch(() => undefined)
    this.received.push(entry)
    if (this.liveReply?.turnId !== entry.turn_id) {
      // Entries of other turns can be many and are not urgent: render them together.
      this.deferred.push(entry)
      this.deferredTimer ??= setTimeout(() => this.addDeferred(), RENDER_MS)
      return
    }
    this.addDeferred()
    this.add([entry])
    if (entry.role === 'assistant') {
      this.buffer = { text: '', thinking: '', isNewStep: false }
      this.liveReply = { ...this.liveReply, text: '', thinking: '' }
    }
  }

  private addDeferred(): void {
    clearTimeout(this.deferredTimer)
    this.deferredTimer = undefined
    if (!this.moreAfter) this.add(this.deferred)
    this.deferred = []
  }

  private add(entries: Entry[]): void {
    const known = new Set(this.entries.map((entry) => entry.seq))
    const added = entries.filter((entry) => !known.has(entry.seq))
    if (added.length) this.entries = [...this.entries, ...added].sort((a, b) => a.seq - b.seq)
  }

  private handleTurnEvent(name: string, turnId: string, data: unknown): void {
    this.lastTurnEvent = Date.now()
    const outcome = name === 'ended' ? (data as { state?: string; reason?: string } | null) : null
    if (outcome?.state === 'waiting') void this.turnParked(turnId)
    else if (name === 'ended') this.endReply(turnId, outcome)
    else if (name === 'lost') void this.turnLost(turnId)
    else if (this.endedTurns.has(turnId)) return
    else if (name === 'began') {
      this.dropBuffer()
      this.liveReply = startReply(turnId, '', null)
      if (this.isWaiting) void this.refresh().catch(() => undefined)
    } else if (name === 'so_far') {
      this.buffer = { text: String(data ?? ''), thinking: '', isNewStep: false }
      this.liveReply = startReply(turnId, this.buffer.text, this.detail?.turn?.began_at ?? null)
    } else if (name === 'delta' || name === 'thinking') this.bufferDelta(name, turnId, String(data ?? ''))
    else if (name === 'step') this.buffer.isNewStep = true
  }

  private bufferDelta(name: 'delta' | 'thinking', turnId: string, text: string): void {
    if (this.buffer.isNewStep) this.buffer = { text: '', thinking: '', isNewStep: false }
    this.buffer[name === 'delta' ? 'text' : 'thinking'] += text
    this.timer ??= setTimeout(() => {
      this.timer = undefined
      this.liveReply = {
        ...(this.liveReply ?? startReply(turnId, '', null)),
        turnId,
        text: this.buffer.text,
        thinking: this.buffer.thinking,
      }
    }, RENDER_MS)
  }

  /** The turn waits for people: it goes on with the same id. */
  private async turnParked(turnId: string): Promise<void> {
    this.dropBuffer()
    if (this.liveReply?.turnId === turnId) this.liveReply = startReply(turnId, '', null)
    await this.refresh().catch(() => undefined)
  }

  /** A process has lost a turn: another one has it, or will continue it, or has ended it. */
  private async turnLost(turnId: string): Promise<void> {
    this.dropBuffer()
    await this.refresh().catch(() => undefined)
    if (this.detail?.turn?.id !== turnId) this.endReply(turnId, null)
  }

  private endReply(turnId: string, data: { state?: string; reason?: string } | null): void {
    this.endedTurns.add(turnId)
    this.dropBuffer()
    const state = data?.state ?? 'lost'
    if (state !== 'done') {
      this.endedTurn = { reason: data?.reason ?? null }
    }
    setTimeout(() => {
      if (this.liveReply?.turnId === turnId) this.liveReply = null
    }, 300)
  }
}

function startReply(turnId: string, text: string, at: string | null): LiveReply {
  return { turnId, text, thinking: '', startedAt: at ? Date.parse(at) : Date.now() }
}
