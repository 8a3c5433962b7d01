/** The questions that are open, of a session or of the whole profile, with what became of them while they are shown. */
import { get, send } from '../api/http'
import type { ListedSession, NewAnswer, QuestionInfo, QuestionListPage } from '../api/schema'
import { live } from '../live/live.svelte'

const PAGE_SIZE = 100
const RELOAD_MS = 150
/** Of how many questions at once the outcome is asked for. */
const MOST_OUTCOMES = 20

export type Answer = Partial<NewAnswer>

export class QuestionList {
  /** Open questions, and those that were decided since they are shown. New ones come last, so that none moves. */
  items = $state.raw<QuestionInfo[]>([])
  next = $state<string | null>(null)
  error = $state.raw<unknown>(null)
  loaded = $state(false)
  open = $derived(this.items.filter((each) => each.state === 'open'))
  private timer: ReturnType<typeof setTimeout> | undefined
  private loading: Promise<void> | null = null
  private isStale = false

  constructor(readonly sessionId: string | null = null) {}

  /** Reload the list when something is asked or decided in any session; call a function when it has changed. */
  follow(onchange: (open: QuestionInfo[]) => void): void {
    $effect.root(() => {
      $effect(() => onchange(this.open))
    })
    live.listen((name, data) => {
      if (name === 'hello' || name === 'resync') this.reloadLater()
      if (name !== 'head' && name !== 'gone') return
      const { id, waits_for_people } = data as ListedSession
      if (waits_for_people || this.open.some((each) => each.session_id === id)) this.reloadLater()
    })
  }

  /** Load the open questions. If they are being loaded, they are loaded once more after that. */
  async load(): Promise<void> {
    this.isStale = true
    this.loading ??= this.loadWhileStale().finally(() => (this.loading = null))
    await this.loading
  }

  async loadOlder(): Promise<void> {
    if (!this.next) return
    const page = await this.fetchPage(this.next)
    const known = new Set(this.items.map((each) => each.id))
    this.items = [...this.items, ...page.items.filter((each) => !known.has(each.id))]
    this.next = page.next
  }

  /** Answer a question, once; throws an `ApiError` if that was not possible. */
  async answer(id: string, answer: Answer): Promise<void> {
    this.put(await send<QuestionInfo>('POST', `/questions/${id}/answer`, answer))
  }

  /** Ask what became of a question. */
  async refresh(id: string): Promise<void> {
    this.put(await get<QuestionInfo>(`/questions/${id}`))
  }

  /** Remove what is decided. */
  prune(): void {
    this.items = this.open
  }

  private reloadLater(): void {
    this.timer ??= setTimeout(() => {
      this.timer = undefined
      void this.load()
    }, RELOAD_MS)
  }

  private async loadWhileStale(): Promise<void> {
    while (this.isStale) {
      this.isStale = false
      try {
        await this.loadOpen()
        this.error = null
      } catch (error) {
        this.error = error
      }
      this.loaded = true
    }
  }

  private async loadOpen(): Promise<void> {
    const page = await this.fetchPage(null)
    const now = new Map(page.items.map((each) => [each.id, each]))
    const missing = this.open.filter((each) => !now.has(each.id)).slice(0, MOST_OUTCOMES)
    const outcomes = await Promise.all(
      missing.map((each) => get<QuestionInfo>(`/questions/${each.id}`).catch(() => null)),
    )
    const gone = new Set(missing.filter((_, at) => !outcomes[at]).map((each) => each.id))
    for (const each of outcomes) if (each) now.set(each.id, each)
    const known = new Set(this.items.map((each) => each.id))
    this.items = [
      ...this.items.filter((each) => !gone.has(each.id)).map((each) => now.get(each.id) ?? each),
      // The server lists the newest first.
      ...page.items.filter((each) => !known.has(each.id)).reverse(),
    ]
    if (!known.size) this.next = page.next
  }

  private fetchPage(cursor: string | null): Promise<QuestionListPage> {
    return get<QuestionListPage>('/questions', { state: 'open', session_id: this.sessionId, limit: PAGE_SIZE, cursor })
  }

  private put(question: QuestionInfo): void {
    this.items = this.items.map((each) => (each.id === question.id ? question : each))
  }
}

/** All open questions of the profile. */
export const openQuestions = new QuestionList()
