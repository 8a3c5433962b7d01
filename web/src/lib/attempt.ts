/** One message on its way: sent again after a failure, or after the page was loaded anew, it is the same one. */
import { freshKey } from './api'

const KEPT_MS = 600_000

interface Kept {
  body: string
  key: string
  at: number
}

export class Attempt {
  private kept: Kept | null

  constructor(private readonly name: string) {
    this.kept = this.read()
  }

  /** The key of these words: the same until they are in. */
  keyFor(body: string): string {
    if (this.kept?.body !== body) this.kept = { body, key: freshKey(), at: Date.now() }
    try {
      sessionStorage.setItem(this.name, JSON.stringify(this.kept))
    } catch {
      // Too large, or no storage: the key lasts until the page is left.
    }
    return this.kept.key
  }

  /** They are in: the same words again are another message. */
  done(): void {
    this.kept = null
    try {
      sessionStorage.removeItem(this.name)
    } catch {
      // Nothing was kept.
    }
  }

  private read(): Kept | null {
    try {
      const kept = JSON.parse(sessionStorage.getItem(this.name) ?? 'null') as Kept | null
      return kept && Date.now() - kept.at < KEPT_MS ? kept : null
    } catch {
      return null
    }
  }
}
