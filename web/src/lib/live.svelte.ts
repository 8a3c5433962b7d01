/** What the server tells as it happens, for this tab. */
import { Problem, get } from './api'
import { Leader } from './leader'
import { Stream, type Link, type Told } from './stream'

type Listener = (name: string, data: unknown, position: number) => void

class Live {
  link = $state<Link>('connecting')
  retryAt = $state(0)
  /** Whether the server cannot be reached; one banner says so for the whole page. */
  isDown = $derived(this.link === 'waiting' || this.link === 'offline')
  private listeners = new Set<Listener>()
  private port: MessagePort | null = null
  private stream: Pick<Stream, 'watch' | 'retry'> | null = null
  private watched: string[] = []
  private checked = 0

  start(): void {
    if ('SharedWorker' in window) this.share()
    else if ('locks' in navigator && 'BroadcastChannel' in window) this.stream = new Leader((told) => this.hear(told))
    else this.stream = new Stream((told) => this.hear(told))
    this.watch([])
    addEventListener('pagehide', () => this.post({ bye: true }))
    addEventListener('pageshow', () => this.post({ watch: this.watched }))
    addEventListener('online', () => this.retry())
    addEventListener('offline', () => (this.link = 'offline'))
  }

  listen(listener: Listener): () => void {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }

  watch(sessions: string[]): void {
    this.watched = sessions
    this.post({ watch: sessions })
    this.stream?.watch(sessions)
  }

  retry(): void {
    this.post({ retry: true })
    this.stream?.retry()
  }

  private share(): void {
    const worker = new SharedWorker(new URL('../worker/events.ts', import.meta.url), {
      type: 'module',
      name: 'sessionary',
    })
    this.port = worker.port
    worker.port.onmessage = ({ data }: MessageEvent<Told>) => this.hear(data)
    worker.port.start()
  }

  private post(wish: object): void {
    this.port?.postMessage(wish)
  }

  private hear(told: Told): void {
    if (told.kind === 'link') {
      this.link = told.link === 'waiting' && !navigator.onLine ? 'offline' : (told.link ?? 'connecting')
      this.retryAt = told.retryAt ?? 0
      if (this.link === 'waiting') void this.lookAtLogin()
      return
    }
    for (const listener of this.listeners) listener(told.name ?? '', told.data, told.position ?? 0)
  }

  /** A stream does not say why it was refused; asking does, and a login that is over leads to the login. */
  private async lookAtLogin(): Promise<void> {
    if (Date.now() - this.checked < 5_000) return
    this.checked = Date.now()
    await get('/me').catch((error: unknown) => {
      if (!(error instanceof Problem)) throw error
    })
  }
}

export const live = new Live()
