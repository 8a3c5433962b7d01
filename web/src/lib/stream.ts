/** One stream of events with its position and its retries; lives in the shared worker or in a tab. */
export type Link = 'connecting' | 'live' | 'waiting' | 'offline'

export interface Told {
  kind: 'event' | 'link'
  name?: string
  data?: unknown
  /** Up to where the record was told; whoever goes on from there misses nothing. */
  position?: number
  link?: Link
  retryAt?: number
}

const NAMES = [
  'hello', 'head', 'entry', 'gone', 'resync', 'closed',
  'began', 'delta', 'thinking', 'step', 'ended', 'lost', 'so_far',
]
const LONGEST_WAIT = 30_000
/** Longer than the server's own sign of life. */
const SILENCE = 45_000

export class Stream {
  private source: EventSource | null = null
  private position: string | null = null
  private topics = ''
  private tries = 0
  private timer: ReturnType<typeof setTimeout> | undefined
  private last: Told = { kind: 'link', link: 'connecting' }

  constructor(
    private readonly tell: (told: Told) => void,
    from: number | null = null,
  ) {
    this.position = from === null ? null : String(from)
  }

  get link(): Told {
    return this.last
  }

  watch(sessions: Iterable<string>): void {
    const topics = ['list', ...[...new Set(sessions)].sort().slice(0, 40).map((id) => `session:${id}`)].join(',')
    if (topics === this.topics) return
    this.topics = topics
    this.open()
  }

  retry(): void {
    this.tries = 0
    this.open()
  }

  private open(): void {
    clearTimeout(this.timer)
    this.source?.close()
    const query = new URLSearchParams({ topics: this.topics })
    if (this.position !== null) query.set('after', this.position)
    const source = new EventSource(`/api/v1/events?${query}`)
    this.source = source
    for (const name of NAMES) {
      source.addEventListener(name, (event) => {
        const message = event as MessageEvent<string>
        if (message.lastEventId) this.position = message.lastEventId
        if (name === 'hello') this.arrived()
        this.tell({ kind: 'event', name, data: JSON.parse(message.data), position: Number(this.position ?? 0) })
      })
    }
    source.onerror = () => this.failed(source)
    this.timer = setTimeout(() => this.failed(source), SILENCE)
  }

  private arrived(): void {
    clearTimeout(this.timer)
    this.tries = 0
    this.say({ kind: 'link', link: 'live' })
  }

  private failed(source: EventSource): void {
    if (source !== this.source) return
    source.close()
    clearTimeout(this.timer)
    const wait = Math.min(LONGEST_WAIT, 500 * 2 ** this.tries++)
    this.say({ kind: 'link', link: 'waiting', retryAt: Date.now() + wait })
    this.timer = setTimeout(() => this.open(), wait)
  }

  private say(told: Told): void {
    this.last = told
    this.tell(told)
  }
}
