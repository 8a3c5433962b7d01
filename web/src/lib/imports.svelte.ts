/** What other tools left on the server's machine, and the import that runs. */
import { get, send } from './api'

export interface Discovery {
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

export interface Outcome {
  tool: string
  title: string
  added: number
  extended: number
  unchanged: number
  messages: number
  skipped: number
  faults: { unit: string; where: string; why: string }[]
  left_out: Record<string, number>
  /** How many files were read anew, had not changed, or brought nothing; each file is one of the three. */
  units: number
  imported_units: number
  unchanged_units: number
  omitted_units: number
  /** The first of those that brought nothing, and why. */
  omissions: { unit: string; reason: string }[]
  /** Answers that may still be growing, and when an import brings them. */
  held_back: number
  held_back_until: string | null
  notes: string[]
}

export interface Job {
  id: string
  dry_run: boolean
  state: 'running' | 'done' | 'failed' | 'stopped'
  began_at: string
  ended_at: string | null
  progress: { tool: string; place: string; bytes: number; all_bytes: number; sessions: number; messages: number } | null
  outcomes: Outcome[]
  error: string | null
}

const LOOK_MS = 500

export class Imports {
  found = $state.raw<Discovery[]>([])
  job = $state.raw<Job | null>(null)
  loaded = $state(false)
  error = $state.raw<unknown>(null)
  private timer: ReturnType<typeof setTimeout> | undefined
  private isClosed = false

  get isRunning(): boolean {
    return this.job?.state === 'running'
  }

  async load(): Promise<void> {
    await this.attempt(async () => {
      const answer = await get<{ items: Discovery[]; job: Job | null }>('/imports')
      this.found = answer.items
      this.job = answer.job
    })
    this.loaded = true
    this.follow()
  }

  async begin(tools: string[], isDryRun: boolean): Promise<void> {
    await this.attempt(async () => {
      this.job = await send<Job>('POST', '/imports', { tools, dry_run: isDryRun })
    })
    this.follow()
  }

  async stop(): Promise<void> {
    await this.attempt(async () => {
      this.job = await send<Job>('DELETE', '/imports/last')
    })
  }

  close(): void {
    this.isClosed = true
    clearTimeout(this.timer)
  }

  private follow(): void {
    clearTimeout(this.timer)
    if (!this.isRunning || this.isClosed) return
    this.timer = setTimeout(() => void this.look(), LOOK_MS)
  }

  private async look(): Promise<void> {
    await this.attempt(async () => {
      this.job = await get<Job>('/imports/last')
    })
    // What was new is not any more.
    if (!this.isRunning) await this.load()
    else this.follow()
  }

  private async attempt(act: () => Promise<void>): Promise<void> {
    try {
      await act()
      this.error = null
    } catch (failure) {
      this.error = failure
    }
  }
}
