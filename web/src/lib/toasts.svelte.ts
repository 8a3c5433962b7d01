/** Short notes with a way back: only for undo and for what finished in the background. */
import { explain } from './api'

export interface Toast {
  id: number
  text: string
  undo: (() => Promise<void>) | null
  isError: boolean
  /** The sessions that undoing would change. */
  sessions: string[]
}

const SECONDS = 8

class Toasts {
  items = $state<Toast[]>([])
  private last = 0
  private timers = new Map<number, ReturnType<typeof setTimeout>>()

  show(text: string, undo: (() => Promise<void>) | null = null, isError = false, sessions: string[] = []): void {
    const same = isError ? this.items.find((each) => each.isError && each.text === text) : undefined
    if (same) {
      this.let(same.id)
      return
    }
    const id = ++this.last
    this.items.push({ id, text, undo, isError, sessions })
    if (this.items.length > 3) this.items.shift()
    this.let(id)
  }

  /** A note that is looked at does not go away. */
  hold(id: number): void {
    clearTimeout(this.timers.get(id))
  }

  let(id: number): void {
    this.hold(id)
    this.timers.set(
      id,
      setTimeout(() => this.drop(id), SECONDS * 1000),
    )
  }

  /** A session was deleted for good: what would bring it back is not offered any more. */
  forget(session: string): void {
    this.items = this.items.map((each) => {
      const left = each.sessions.filter((id) => id !== session)
      return left.length === each.sessions.length
        ? each
        : { ...each, sessions: left, undo: left.length ? each.undo : null }
    })
  }

  drop(id: number): void {
    this.hold(id)
    this.timers.delete(id)
    this.items = this.items.filter((each) => each.id !== id)
  }

  async undoLast(): Promise<void> {
    const last = [...this.items].reverse().find((each) => each.undo)
    if (last) await this.undo(last)
  }

  /** What cannot be taken back is said: nobody shall believe that it was. */
  async undo(toast: Toast): Promise<void> {
    this.drop(toast.id)
    await toast.undo?.().catch((error: unknown) => this.show(explain(error), null, true))
  }
}

export const toasts = new Toasts()
