/** What can be imported on the server's machine, and the running import. */
import { get, send } from './api/http'
import type { FoundRecords, ImportJob, ImportPage } from './api/schema'

const POLL_MS = 500

export class ImportRunner {
  found = $state.raw<FoundRecords[]>([])
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
      const answer = await get<ImportPage>('/imports')
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
