/** Shares one stream between tabs without a shared worker: the tab that holds the lock runs it. */
import { randomKey } from '../api/http'
import { EventStream, type StreamMessage } from './event-stream'

const LOCK = 'sessionary-stream'

interface TabMessage {
  /** Forwarded by the leader. */
  message?: StreamMessage
  /** The tab that wants to watch sessions; a new leader asks all tabs with `who`. */
  tab?: string
  watch?: string[]
  retry?: boolean
  who?: boolean
}

export class TabLeader {
  private readonly channel = new BroadcastChannel('sessionary')
  private readonly tab = randomKey()
  private watchedByTab = new Map<string, string[]>()
  private ownSessions: string[] = []
  private stream: EventStream | null = null
  private position: number | null = null

  constructor(private readonly onMessage: (message: StreamMessage) => void) {
    this.channel.onmessage = ({ data }: MessageEvent<TabMessage>) => this.handleTabMessage(data)
    addEventListener('pagehide', () => this.channel.postMessage({ tab: this.tab, watch: [] } satisfies TabMessage))
    void navigator.locks.request(LOCK, () => this.lead())
  }

  watch(sessions: string[]): void {
    this.ownSessions = sessions
    this.setWatched(this.tab, sessions)
    for (const message of this.stream?.partialReplies(sessions) ?? []) this.onMessage(message)
    this.channel.postMessage({ tab: this.tab, watch: sessions } satisfies TabMessage)
  }

  retry(): void {
    this.stream?.retry()
    this.channel.postMessage({ retry: true } satisfies TabMessage)
  }

  /** Hold the lock, and run the stream, until the tab is closed. */
  private lead(): Promise<never> {
    this.stream = new EventStream((message) => {
      this.onMessage(message)
      this.channel.postMessage({ message } satisfies TabMessage)
    }, this.position)
    this.channel.postMessage({ who: true } satisfies TabMessage)
    this.setWatched(this.tab, this.ownSessions)
    return new Promise(() => undefined)
  }

  private handleTabMessage({ message, tab, watch, retry, who }: TabMessage): void {
    if (message && !this.stream) {
      // The next leader continues from here.
      this.position = message.position ?? this.position
      this.onMessage(message)
    }
    if (who) this.channel.postMessage({ tab: this.tab, watch: this.ownSessions } satisfies TabMessage)
    if (retry) this.stream?.retry()
    if (tab && watch) {
      this.setWatched(tab, watch)
      if (this.stream) this.channel.postMessage({ message: this.stream.connection } satisfies TabMessage)
      // Goes to all tabs; those that already watch the session have the same text.
      for (const message of this.stream?.partialReplies(watch) ?? [])
        this.channel.postMessage({ message } satisfies TabMessage)
    }
  }

  private setWatched(tab: string, sessions: string[]): void {
    this.watchedByTab.set(tab, sessions)
    this.stream?.watch([...this.watchedByTab.values()].flat())
  }
}
