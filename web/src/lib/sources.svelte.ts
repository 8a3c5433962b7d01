/** How many sessions each shelf and each source has. */
import { get } from './api'
import { list } from './list.svelte'
import type { Page } from './types'

export interface Counts {
  items: { platform: string; sessions: number }[]
  shelves: Record<string, number>
  /** So many means «so many or more». */
  most: number
}

class Sources {
  private counts = $state.raw<Counts | null>(null)
  private used = $state.raw<string[]>([])

  /** Every model that a session has, on whatever page of the list it stands. */
  models = $derived([...new Set([...(list.filters.model ? [list.filters.model] : []), ...this.used])].sort())

  items = $derived.by(() => {
    const known = new Map((this.counts?.items ?? []).map((each) => [each.platform, each.sessions]))
    for (const source of list.sources) if (!known.has(source)) known.set(source, 0)
    return [...known].map(([name, count]) => ({ name, count: this.said(count) }))
  })

  async load(): Promise<void> {
    this.counts = await get<Counts>('/sources', { shelf: list.filters.shelf })
  }

  async loadModels(): Promise<void> {
    this.used = (await get<Page<{ model: string }>>('/models')).items.map((each) => each.model)
  }

  /** How many are on a shelf, in words; nothing while nobody has counted. */
  on(shelf: string): string {
    const by = this.counts?.shelves
    if (!by) return ''
    return this.said(shelf === 'all' ? (by['chats'] ?? 0) + (by['automation'] ?? 0) : (by[shelf] ?? 0))
  }

  private said(count: number): string {
    const most = this.counts?.most ?? Infinity
    return count >= most ? `${most.toLocaleString()}+` : count.toLocaleString()
  }
}

export const sources = new Sources()
