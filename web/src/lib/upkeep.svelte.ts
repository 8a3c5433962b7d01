/** Maintenance of the store: backup, check and shrink. Runs one task at a time and polls its progress. */
import { get, ApiError, send } from './api/http'
import type { UpkeepJob, UpkeepOverview } from './api/schema'

export type Task = UpkeepJob['task']

const POLL_MS = 400

export class Upkeep {
  overview = $state.raw<UpkeepOverview | null>(null)
  job = $state.raw<UpkeepJob | null>(null)
  error = $state.raw<unknown>(null)
  /** Why this person may not run maintenance. */
  refused = $state<string | null>(null)
  private timer: ReturnType<typeof setTimeout> | undefined

  async load(): Promise<void> {
    try {
      this.overview = await get<UpkeepOverview>('/upkeep')
      this.job = this.overview.jobs[0] ?? null
      this.error = null
      if (this.job?.state === 'running') this.poll(this.job.id)
    } catch (failure) {
      if (failure instanceof ApiError && (failure.status === 403 || failure.status === 409))
        this.refused = failure.message
      else this.error = failure
    }
  }

  async start(task: Task): Promise<void> {
    await this.catchError(async () => {
      this.job = await send<UpkeepJob>('POST', '/upkeep', { task })
      this.poll(this.job.id)
    })
  }

  async stop(): Promise<void> {
    const job = this.job
    if (job) await this.catchError(() => send('DELETE', `/upkeep/${job.id}`))
  }

  close(): void {
    clearTimeout(this.timer)
  }

  private poll(id: string): void {
    clearTimeout(this.timer)
    this.timer = setTimeout(async () => {
      await this.catchError(async () => {
        this.job = await get<UpkeepJob>(`/upkeep/${id}`)
        if (this.job.state !== 'running') await this.load()
      })
      // Keep polling while the server is unreachable for a moment.
      if (this.job?.state === 'running') this.poll(id)
    }, POLL_MS)
  }

  private async catchError(act: () => Promise<unknown>): Promise<void> {
    try {
      await act()
      this.error = null
    } catch (failure) {
      this.error = failure
    }
  }
}
