/** What a person has typed and not sent: kept by the server, and here until the server has it. */
import { send } from './api'

const DELAY = 600

export class Draft {
  text = $state('')
  failed = $state(false)
  private kept: string
  private timer: ReturnType<typeof setTimeout> | undefined

  constructor(
    private readonly sessionId: string | null,
    server: string | null,
  ) {
    this.kept = server ?? ''
    this.text = this.mirrored() ?? this.kept
    if (this.text !== this.kept) this.later()
  }

  private get name(): string {
    return `hansard.draft.${this.sessionId ?? 'new'}`
  }

  typed(text: string): void {
    this.text = text
    try {
      localStorage.setItem(this.name, text)
    } catch {
      // Without storage the server's copy alone remains.
    }
    this.later()
  }

  /** The text was sent and is durable: nothing is to be kept. */
  sent(): void {
    this.text = ''
    this.forget()
    this.later()
  }

  close(): void {
    clearTimeout(this.timer)
    if (this.text !== this.kept) void this.store()
  }

  private later(): void {
    clearTimeout(this.timer)
    this.timer = setTimeout(() => void this.store(), DELAY)
  }

  private async store(): Promise<void> {
    if (this.sessionId === null || this.text === this.kept) return
    const text = this.text
    try {
      await send('PATCH', `/sessions/${this.sessionId}`, { draft: text })
      this.kept = text
      this.failed = false
      if (this.text === text) this.forget()
    } catch {
      this.failed = true
    }
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
