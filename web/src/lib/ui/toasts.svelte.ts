/** Short notes: an action that can be undone, or something that finished in the background. */
import { errorMessage } from '../api/http'

export interface Toast {
  id: number
  text: string
  undo: (() => Promise<void>) | null
  isError: boolean
  /** The ids of the sessions that undo would change. */
  sessions: string[]
}

const SHOWN_SECONDS = 8

class Toasts {
  items = $state<Toast[]>([])
  private lastId = 0
  private timers = new Map<number, ReturnType<typeof setTimeout>>()

  show(text: string, undo: (() => Promise<void>) | null = null, isError = false, sessions: string[] = []): void {
    const same = isError ? this.items.find((each) => each.isError && each.text === text) : undefined
    if (same) {
      this.closeLater(same.id)
      return
    }
    const id = ++this.lastId
    this.items.push({ id, text, undo, isError, sessions })
    if (this.items.length > 3) this.items.shift()
    this.closeLater(id)
  }

  /** Stop the timer that closes a toast, while someone reads it. */
  keepOpen(id: number): void {
    clearTimeout(this.timers.get(id))
  }

  closeLater(id: number): void {
    this.keepOpen(id)
    this.timers.set(
      id,
      setTimeout(() => this.dismiss(id), SHOWN_SECONDS * 1000),
    )
  }

  /** Remove a purged session from the toasts: undo cannot bring it back. */
  dropUndoFor(session: string): void {
    this.items = this.items.map((each) => {
      const left = each.sessions.filter((id) => id !== session)
      return left.length === each.sessions.length
        ? each
        : { ...each, sessions: left, undo: left.length ? each.undo : null }
    })
  }

  dismiss(id: number): void {
    this.keepOpen(id)
    this.timers.delete(id)
    this.items = this.items.filter((each) => each.id !== id)
  }

  async undoLast(): Promise<void> {
    const last = [...this.items].reverse().find((each) => each.undo)
    if (last) await this.undo(last)
  }

  /** Undo an action, and show an error if that fails. */
  async undo(toast: Toast): Promise<void> {
    this.dismiss(toast.id)
    await toast.undo?.().catch((error: unknown) => this.show(errorMessage(error), null, true))
  }
}

export const toasts = new Toasts()
