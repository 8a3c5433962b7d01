/** One stream of server-sent events with its position and retries. Runs in the shared worker or in a tab. */
export type ConnectionState = 'connecting' | 'live' | 'waiting' | 'offline'

export interface StreamMessage {
  kind: 'event' | 'connection'
  name?: string
  data?: unknown
  /** The position of this event in the record; a stream that starts after it misses nothing. */
  position?: number
  connection?: ConnectionState
  retryAt?: number
}

const EVENT_NAMES = [
  'hello',
  'head',
  'entry',
  'gone',
  'resync',
  'closed',
  'began',
  'delta',
  'thinking',
  'step',
  'ended',
  'lost',
  'so_far',
]
const MAX_RETRY_MS = 30_000
/** Longer than the interval of the server's keep-alive. */
const SILENCE_MS = 45_000

interface LiveData {
  session_id: string
  turn_id: string
  data: unknown
}

export class EventStream {
  /** The partial replies of running turns by session, for tabs that start watching later. */
  private partialTexts = new Map<string, LiveData & { data: string }>()
  private source: EventSource | null = null
  private position: string | null = null
  private topics = ''
  private attempts = 0
  private timer: ReturnType<typeof setTimeout> | undefined
  private lastConnection: StreamMessage = { kind: 'connection', connection: 'connecting' }

  constructor(
    private readonly onMessage: (message: StreamMessage) => void,
    from: number | null = null,
  ) {
    this.position = from === null ? null : String(from)
  }

  get connection(): StreamMessage {
    return this.lastConnection
  }

  /** What a tab that starts watching these sessions has missed of their replies. */
  partialReplies(sessions: Iterable<string>): StreamMessage[] {
    const known = [...sessions].map((id) => this.partialTexts.get(id)).filter((each) => each !== undefined)
    return known.map((data) => ({
      kind: 'event',
      name: 'so_far',
      data: { ...data },
      position: Number(this.position ?? 0),
    }))
  }

  watch(sessions: Iterable<string>): void {
    const topics = [
      'list',
      ...[...new Set(sessions)]
        .sort()
        .slice(0, 40)
        .map((id) => `session:${id}`),
    ].join(',')
    if (topics === this.topics) return
    this.topics = topics
    this.open()
  }

  retry(): void {
    this.attempts = 0
    this.open()
  }

  private open(): void {
    clearTimeout(this.timer)
    this.source?.close()
    // The server sends partial replies again from the beginning.
    this.partialTexts.clear()
    const query = new URLSearchParams({ topics: this.topics })
    if (this.position !== null) query.set('after', this.position)
    const source = new EventSource(`/api/v1/events?${query}`)
    this.source = source
    for (const name of EVENT_NAMES) {
      source.addEventListener(name, (event) => {
        const message = event as MessageEvent<string>
        if (message.lastEventId) this.position = message.lastEventId
        if (name === 'hello') this.connected()
        const data: unknown = JSON.parse(message.data)
        this.trackReply(name, data as LiveData)
        this.onMessage({ kind: 'event', name, data, position: Number(this.position ?? 0) })
      })
    }
    source.onerror = () => this.failed(source)
    this.timer = setTimeout(() => this.failed(source), SILENCE_MS)
  }

  private trackReply(name: string, data: LiveData): void {
    const id = data.session_id
    if (name === 'began' || name === 'step') this.partialTexts.set(id, { ...data, data: '' })
    else if (name === 'so_far') this.partialTexts.set(id, { ...data, data: String(data.data ?? '') })
    else if (name === 'ended' || name === 'lost') this.partialTexts.delete(id)
    else if (name === 'delta') {
      const known = this.partialTexts.get(id)
      if (known) known.data += String(data.data ?? '')
    }
  }

  private connected(): void {
    clearTimeout(this.timer)
    this.attempts = 0
    this.setConnection({ kind: 'connection', connection: 'live' })
  }

  private failed(source: EventSource): void {
    if (source !== this.source) return
    source.close()
    clearTimeout(this.timer)
    const wait = Math.min(MAX_RETRY_MS, 500 * 2 ** this.attempts++)
    this.setConnection({ kind: 'connection', connection: 'waiting', retryAt: Date.now() + wait })
    this.timer = setTimeout(() => this.open(), wait)
  }

  private setConnection(message: StreamMessage): void {
    this.lastConnection = message
    this.onMessage(message)
  }
}
