/** The key of a message that is being sent: a retry, also after a reload, stores the message only once. */
import { randomKey } from '../api/http'

const LIFETIME_MS = 600_000

interface StoredKey {
  body: string
  key: string
  at: number
}

export class IdempotencyKey {
  private stored: StoredKey | null

  constructor(private readonly name: string) {
    this.stored = this.read()
  }

  /** The key of this message; the same until `clear` is called. */
  keyFor(body: string): string {
    if (this.stored?.body !== body) this.stored = { body, key: randomKey(), at: Date.now() }
    try {
      sessionStorage.setItem(this.name, JSON.stringify(this.stored))
    } catch {
      // Too large, or no storage: the key lasts until the page is closed.
    }
    return this.stored.key
  }

  /** The message is stored: the same text is a new message from now on. */
  clear(): void {
    this.stored = null
    try {
      sessionStorage.removeItem(this.name)
    } catch {
      // There is no storage.
    }
  }

  private read(): StoredKey | null {
    try {
      const stored = JSON.parse(sessionStorage.getItem(this.name) ?? 'null') as StoredKey | null
      return stored && Date.now() - stored.at < LIFETIME_MS ? stored : null
    } catch {
      return null
    }
  }
}
