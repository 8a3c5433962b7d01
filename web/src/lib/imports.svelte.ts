/** What can be imported on the server's machine, and the running import. */
import { get, send } from './api/http'

export interface ImportSource {
  tool: string
  title: string
  place: string
  units: number
  bytes: number
  new_units: number
  new_bytes: number
  expiring: number
  expires_at: string | null
}

export interface ImportResult {
  tool: string
  title: string
  added: number
  extended: number
  unchanged: number
  messages: number
  skipped: number
  faults: { unit: string; where: string; why: string }[]
  left_out: Record<string, number>
  /** All files; each is either imported, unchanged or omitted. */
  units: number
  imported_units: number
  unchanged_units: number
  omitted_units: number
  /** The first omitted files, and why. */
  omissions: { unit: string; reason: string }[]
  /** Replies that may still be growing, and when an import will include them. */
  held_back: number
  held_back_until: string | null
  notes: string[]
}

export interface ImportJob {
  id: string
  dry_run: boolean
  state: 'running' | 'done' | 'failed' | 'stopped'
  began_at: string
  ended_at: string | null
  progress: { tool: string; place: string; bytes: number; all_bytes: number; sessions: number; messages: number } | null
  outcomes: ImportResult[]
  error: string | null
}

const POLL_MS = 500

export class ImportRunner {
  found = $state.raw<ImportSource[]>([])
  job = $state.raw<ImportJob | null>(null)
  loaded = $state(false)
  error = $state.raw<unknown>(null)
  private timer: ReturnType<typeof setTimeout> | undefined
  private isClosed = false

  get isRunning(): boolean {
    return this.job?.state === 'running'
  }

  async load(): Promise<void> {
    await this.catchError(async () => {
      const answer = await get<{ items: ImportSource[]; job: ImportJob | null }>('/imports')
      this.found = answer.items
      this.job = answer.job
    })
    this.loaded = true
    this.pollWhileRunning()
  }

  async start(tools: string[], isDryRun: boolean): Promise<void> {
    await this.catchError(async () => {
      this.job = await send<ImportJob>('POST', '/imports', { tools, dry_run: isDryRun })
    })
    this.pollWhileRunning()
  }

  async stop(): Promise<void> {
    await this.catchError(async () => {
      this.job = await send<ImportJob>('DELETE', '/imports/last')
    })
  }

  close(): void {
    this.isClosed = true
    clearTimeout(this.timer)
  }

  private pollWhileRunning(): void {
    clearTimeout(this.timer)
    if (!this.isRunning || this.isClosed) return
    this.timer = setTimeout(() => void this.poll(), POLL_MS)
  }

  private async poll(): Promise<void> {
    await this.catchError(async () => {
      this.job = await get<ImportJob>('/imports/last')
    })
    // What can be imported has changed.
    if (!this.isRunning) await this.load()
    else this.pollWhileRunning()
  }

  private async catchError(act: () => Promise<void>): Promise<void> {
    try {
      await act()
      this.error = null
    } catch (failure) {
      this.error = failure
    }
  }
}
