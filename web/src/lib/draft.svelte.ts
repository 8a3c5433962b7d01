/** What a person has typed and not sent: kept by the server, and here until the server has it. */
import { send } from './api'

const DELAY = 600

export class Draft {
  text = $state('')
  failed = $state(false)
  private kept: string
  private timer: ReturnType<typeof setTimeout> | undefined
  private isStoring = false

  constructor(
    private readonly sessionId: string | null,
    server: string | null,
  ) {
    this.kept = server ?? ''
    this.text = this.mirrored() ?? this.kept
    if (this.text !== this.kept) this.later()
  }

  private get name(): string {
    return nameFor(this.sessionId)
  }

  typed(text: string): void {
    this.text = text
    this.mirror(text)
    this.later()
  }

  /** These words were sent and are durable; what was typed after them stays, or goes along into the session they began. */
  sent(words: string, began: string | null = null): void {
    const rest = this.text.startsWith(words) ? this.text.slice(words.length).trimStart() : this.text
    if (rest && this.sessionId === null && began !== null) {
      this.text = ''
      this.forget()
      keep(nameFor(began), rest)
      return
    }
    if (rest) {
      this.typed(rest)
      return
    }
    this.text = ''
    clearTimeout(this.timer)
    if (this.sessionId === null) {
      this.forget()
      return
    }
    // Until the server has let go of it too: a page that is loaded now must not offer it again.
    this.mirror('')
    void this.store()
  }

  /** What the server had, where it was not known at first; what was typed meanwhile follows it. */
  offered(server: string | null): void {
    this.kept = server ?? ''
    if (server && this.text !== server) this.typed(this.text ? `${server}\n${this.text}` : server)
  }

  /** Bring to the server what it does not have, now. */
  flush(): void {
    clearTimeout(this.timer)
    if (this.text !== this.kept) void this.store()
  }

  private later(): void {
    clearTimeout(this.timer)
    this.timer = setTimeout(() => void this.store(), DELAY)
  }

  private async store(): Promise<void> {
    // One after the other: of two that are on the way the older one might come last.
    if (this.sessionId === null || this.isStoring) return
    if (this.text === this.kept) {
      this.forget()
      return
    }
    const text = this.text
    this.isStoring = true
    try {
      await send('PATCH', `/sessions/${this.sessionId}`, { draft: text })
      this.kept = text
      this.failed = false
      if (this.text === text) this.forget()
      else this.later()
    } catch {
      this.failed = true
    } finally {
      this.isStoring = false
    }
  }

  private mirror(text: string): void {
    keep(this.name, text)
  }

  private mirrored(): string | null {
    try {
      return localStorage.getItem(this.name)
    } catch {
      return null
    }
  }

  private forget(): void {
    try {
      localStorage.removeItem(this.name)
    } catch {
      // Nothing was kept.
    }
  }
}

function nameFor(sessionId: string | null): string {
  return `sessionary.draft.${sessionId ?? 'new'}`
}

function keep(name: string, text: string): void {
  try {
    localStorage.setItem(name, text)
  } catch {
    // Without storage the server's copy alone remains.
  }
}
