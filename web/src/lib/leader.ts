/** One stream for all tabs where there is no shared worker: the tab that holds the lock has it. */
import { freshKey } from './api'
import { Stream, type Told } from './stream'

const LOCK = 'sessionary-stream'

interface Note {
  /** What the leader heard. */
  told?: Told
  /** What a tab wants to see; the leader asks for it when it begins. */
  tab?: string
  watch?: string[]
  retry?: boolean
  who?: boolean
}

export class Leader {
  private readonly channel = new BroadcastChannel('sessionary')
  private readonly tab = freshKey()
  private wishes = new Map<string, string[]>()
  private mine: string[] = []
  private stream: Stream | null = null
  private position: number | null = null

  constructor(private readonly hear: (told: Told) => void) {
    this.channel.onmessage = ({ data }: MessageEvent<Note>) => this.note(data)
    addEventListener('pagehide', () => this.channel.postMessage({ tab: this.tab, watch: [] } satisfies Note))
    void navigator.locks.request(LOCK, () => this.lead())
  }

  watch(sessions: string[]): void {
    this.mine = sessions
    this.wish(this.tab, sessions)
    for (const told of this.stream?.begunIn(sessions) ?? []) this.hear(told)
    this.channel.postMessage({ tab: this.tab, watch: sessions } satisfies Note)
  }

  retry(): void {
    this.stream?.retry()
    this.channel.postMessage({ retry: true } satisfies Note)
  }

  /** Hold the lock, and with it the stream, until the tab is closed. */
  private lead(): Promise<never> {
    this.stream = new Stream((told) => {
      this.hear(told)
      this.channel.postMessage({ told } satisfies Note)
    }, this.position)
    this.channel.postMessage({ who: true } satisfies Note)
    this.wish(this.tab, this.mine)
    return new Promise(() => undefined)
  }

  private note({ told, tab, watch, retry, who }: Note): void {
    if (told && !this.stream) {
      // Who leads next goes on from here.
      this.position = told.position ?? this.position
      this.hear(told)
    }
    if (who) this.channel.postMessage({ tab: this.tab, watch: this.mine } satisfies Note)
    if (retry) this.stream?.retry()
    if (tab && watch) {
      this.wish(tab, watch)
      if (this.stream) this.channel.postMessage({ told: this.stream.link } satisfies Note)
      // To all tabs: for those that know it already it is what they have.
      for (const told of this.stream?.begunIn(watch) ?? []) this.channel.postMessage({ told } satisfies Note)
    }
  }

  private wish(tab: string, sessions: string[]): void {
    this.wishes.set(tab, sessions)
    this.stream?.watch([...this.wishes.values()].flat())
  }
}
