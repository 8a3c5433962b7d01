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
const LONGEST_WAIT = 30_000
/** Longer than the server's own sign of life. */
const SILENCE = 45_000

interface LiveData {
  session_id: string
  turn_id: string
  data: unknown
}

export class Stream {
  /** What the running turns of the watched sessions have said of their unfinished steps, for a tab that comes late. */
  private soFar = new Map<string, LiveData & { data: string }>()
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

  /** For a tab that begins to watch these sessions: the beginning of what the stream is telling. */
  begunIn(sessions: Iterable<string>): Told[] {
    const known = [...sessions].map((id) => this.soFar.get(id)).filter((each) => each !== undefined)
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
    this.tries = 0
    this.open()
  }

  private open(): void {
    clearTimeout(this.timer)
    this.source?.close()
    // The server repeats the reply from its beginning.
    this.soFar.clear()
    const query = new URLSearchParams({ topics: this.topics })
    if (this.position !== null) query.set('after', this.position)
    const source = new EventSource(`/api/v1/events?${query}`)
    this.source = source
    for (const name of NAMES) {
      source.addEventListener(name, (event) => {
        const message = event as MessageEvent<string>
        if (message.lastEventId) this.position = message.lastEventId
        if (name === 'hello') this.arrived()
        const data: unknown = JSON.parse(message.data)
        this.note(name, data as LiveData)
        this.tell({ kind: 'event', name, data, position: Number(this.position ?? 0) })
      })
    }
    source.onerror = () => this.failed(source)
    this.timer = setTimeout(() => this.failed(source), SILENCE)
  }

  private note(name: string, data: LiveData): void {
    const id = data.session_id
    if (name === 'began' || name === 'step') this.soFar.set(id, { ...data, data: '' })
    else if (name === 'so_far') this.soFar.set(id, { ...data, data: String(data.data ?? '') })
    else if (name === 'ended' || name === 'lost') this.soFar.delete(id)
    else if (name === 'delta') {
      const known = this.soFar.get(id)
      if (known) known.data += String(data.data ?? '')
    }
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
