/** Looking after the store: backups, checks, shrinking; one task at a time, asked how it goes. */
import { get, Problem, send } from './api'

export type Task = 'backup' | 'verify' | 'shrink'

export interface UpkeepJob {
  id: string
  task: Task
  state: 'running' | 'done' | 'failed' | 'stopped'
  progress: { done: number; whole: number } | null
  outcome: Record<string, unknown> | null
  error: string | null
}

export interface Overview {
  folder: string
  backups: { name: string; bytes: number }[]
  bytes: number | null
  tasks: Task[]
  jobs: UpkeepJob[]
}

const PAUSE_MS = 400

export class Upkeep {
  seen = $state.raw<Overview | null>(null)
  job = $state.raw<UpkeepJob | null>(null)
  error = $state.raw<unknown>(null)
  /** Whoever is not the owner gets no buttons, and a word why. */
  refused = $state<string | null>(null)
  private timer: ReturnType<typeof setTimeout> | undefined

  async load(): Promise<void> {
    try {
      this.seen = await get<Overview>('/upkeep')
      this.job = this.seen.jobs[0] ?? null
      this.error = null
      if (this.job?.state === 'running') this.follow(this.job.id)
    } catch (failure) {
      if (failure instanceof Problem && (failure.status === 403 || failure.status === 409))
        this.refused = failure.message
      else this.error = failure
    }
  }

  async start(task: Task): Promise<void> {
    await this.attempt(async () => {
      this.job = await send<UpkeepJob>('POST', '/upkeep', { task })
      this.follow(this.job.id)
    })
  }

  async stop(): Promise<void> {
    const job = this.job
    if (job) await this.attempt(() => send('DELETE', `/upkeep/${job.id}`))
  }

  leave(): void {
    clearTimeout(this.timer)
  }

  private follow(id: string): void {
    clearTimeout(this.timer)
    this.timer = setTimeout(async () => {
      await this.attempt(async () => {
        this.job = await get<UpkeepJob>(`/upkeep/${id}`)
        if (this.job.state !== 'running') await this.load()
      })
      // A server that is away for a moment is asked again.
      if (this.job?.state === 'running') this.follow(id)
    }, PAUSE_MS)
  }

  private async attempt(act: () => Promise<unknown>): Promise<void> {
    try {
      await act()
      this.error = null
    } catch (failure) {
      this.error = failure
    }
  }
}
