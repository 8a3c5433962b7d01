/** The unsent text of a session: stored on the server, and in the browser until the server has it. */
import { send } from '../api/http'

const STORE_DELAY_MS = 600

export class Draft {
  text = $state('')
  failed = $state(false)
  private stored: string
  private timer: ReturnType<typeof setTimeout> | undefined
  private isStoring = false
  // What this page has asked the server to store, whether or not it answered.
  private readonly own = new Set<string>()

  constructor(
    private readonly sessionId: string | null,
    serverDraft: string | null,
  ) {
    this.stored = serverDraft ?? ''
    this.text = this.readLocal() ?? this.stored
    if (this.text !== this.stored) this.scheduleStore()
  }

  private get key(): string {
    return storageKey(this.sessionId)
  }

  setText(text: string): void {
    this.text = text
    this.storeLocally(text)
    this.scheduleStore()
  }

  /** Remove the text that was sent. Text typed since then stays, or moves to the session that the message created. */
  removeSent(sentText: string, newSessionId: string | null = null): void {
    const remaining = this.text.startsWith(sentText) ? this.text.slice(sentText.length).trimStart() : this.text
    if (remaining && this.sessionId === null && newSessionId !== null) {
      this.text = ''
      this.removeLocal()
      writeLocal(storageKey(newSessionId), remaining)
      return
    }
    if (remaining) {
      this.setText(remaining)
      return
    }
    this.text = ''
    clearTimeout(this.timer)
    if (this.sessionId === null) {
      this.removeLocal()
      return
    }
    // Keep the empty draft locally until the server has it: a reload must not bring the sent text back.
    this.storeLocally('')
    void this.store()
  }

  /** Put the server's draft, which was loaded later, before the text typed meanwhile; unless it is from this page. */
  mergeServerDraft(serverDraft: string | null): void {
    this.stored = serverDraft ?? ''
    if (this.text === this.stored) return
    // A text of this page may have been sent as a message since: it must not come back.
    if (!serverDraft || this.own.has(serverDraft)) this.scheduleStore()
    else this.setText(this.text ? `${serverDraft}\n${this.text}` : serverDraft)
  }

  /** Store the text on the server now. */
  flush(): void {
    clearTimeout(this.timer)
    if (this.text !== this.stored) void this.store()
  }

  private scheduleStore(): void {
    clearTimeout(this.timer)
    this.timer = setTimeout(() => void this.store(), STORE_DELAY_MS)
  }

  private async store(): Promise<void> {
    // One request at a time, so that an older text cannot arrive last.
    if (this.sessionId === null || this.isStoring) return
    if (this.text === this.stored) {
      this.removeLocal()
      return
    }
    const text = this.text
    this.isStoring = true
    this.own.add(text)
    try {
      await send('PATCH', `/sessions/${this.sessionId}`, { draft: text })
      this.stored = text
      this.failed = false
      if (this.text === text) this.removeLocal()
      else this.scheduleStore()
    } catch {
      this.failed = true
    } finally {
      this.isStoring = false
    }
  }

  private storeLocally(text: string): void {
    writeLocal(this.key, text)
  }

  private readLocal(): string | null {
    try {
      return localStorage.getItem(this.key)
    } catch {
      return null
    }
  }

  private removeLocal(): void {
    try {
      localStorage.removeItem(this.key)
    } catch {
      // There is no storage.
    }
  }
}

function storageKey(sessionId: string | null): string {
  return `sessionary.draft.${sessionId ?? 'new'}`
}

function writeLocal(key: string, text: string): void {
  try {
    localStorage.setItem(key, text)
  } catch {
    // Without storage there is only the server's copy.
  }
}
