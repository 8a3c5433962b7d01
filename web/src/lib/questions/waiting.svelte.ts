/** How many questions are open. What lists them is loaded with the first session that waits for an answer. */
import type { ListedSession } from '../api/schema'
import { live } from '../live/live.svelte'

class WaitingQuestions {
  count = $state('')
  private isLoaded = false
  open: (sessionId: string) => void = () => undefined

  /** Begin to listen; `open` opens a session. */
  start(open: (sessionId: string) => void): void {
    this.open = open
    live.listen((name, data) => {
      const summary = data as ListedSession
      if (name === 'head' && summary.waits_for_people) this.load(summary.id)
    })
  }

  /** Load the open questions; `newIn` is the session that has just asked. */
  load(newIn: string | null = null): void {
    if (this.isLoaded) return
    this.isLoaded = true
    import('./alerts').then(
      ({ startAlerts }) => startAlerts(newIn),
      () => (this.isLoaded = false),
    )
  }
}

export const waiting = new WaitingQuestions()
