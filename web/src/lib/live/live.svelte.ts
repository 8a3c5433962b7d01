/** The server's events for this tab, through a stream that all tabs share. */
import { ApiError, get } from '../api/http'
import { TabLeader } from './tab-leader'
import { EventStream, type ConnectionState, type StreamMessage } from './event-stream'

type Listener = (name: string, data: unknown, position: number) => void

class LiveConnection {
  connection = $state<ConnectionState>('connecting')
  retryAt = $state(0)
  /** Whether the server is unreachable; one banner says so for the whole page. */
  isDown = $derived(this.connection === 'waiting' || this.connection === 'offline')
  private listeners = new Set<Listener>()
  private port: MessagePort | null = null
  private stream: Pick<EventStream, 'watch' | 'retry'> | null = null
  private watched: string[] = []
  private loginCheckedAt = 0

  start(): void {
    if ('SharedWorker' in window) this.useSharedWorker()
    else if ('locks' in navigator && 'BroadcastChannel' in window)
      this.stream = new TabLeader((message) => this.receive(message))
    else this.stream = new EventStream((message) => this.receive(message))
    this.watch([])
    addEventListener('pagehide', () => this.post({ bye: true }))
    addEventListener('pageshow', () => this.post({ watch: this.watched }))
    addEventListener('online', () => this.retry())
    addEventListener('offline', () => (this.connection = 'offline'))
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

  private useSharedWorker(): void {
    const worker = new SharedWorker(new URL('../../worker/events.ts', import.meta.url), {
      type: 'module',
      name: 'sessionary',
    })
    this.port = worker.port
    worker.port.onmessage = ({ data }: MessageEvent<StreamMessage>) => this.receive(data)
    worker.port.start()
  }

  private post(request: object): void {
    this.port?.postMessage(request)
  }

  private receive(message: StreamMessage): void {
    if (message.kind === 'connection') {
      this.connection =
        message.connection === 'waiting' && !navigator.onLine ? 'offline' : (message.connection ?? 'connecting')
      this.retryAt = message.retryAt ?? 0
      if (this.connection === 'waiting') void this.checkLogin()
      return
    }
    for (const listener of this.listeners) listener(message.name ?? '', message.data, message.position ?? 0)
  }

  /** A stream does not say why it was rejected. A request does, and leads to the login if that has expired. */
  private async checkLogin(): Promise<void> {
    if (Date.now() - this.loginCheckedAt < 5_000) return
    this.loginCheckedAt = Date.now()
    await get('/me').catch((error: unknown) => {
      if (!(error instanceof ApiError)) throw error
    })
  }
}

export const live = new LiveConnection()
