/** How many sessions each shelf and each source has. */
import { get } from './api'
import { list } from './list.svelte'

export interface Counts {
  items: { platform: string; sessions: number }[]
  shelves: Record<string, number>
  /** So many means «so many or more». */
  most: number
}

class Sources {
  private counts = $state.raw<Counts | null>(null)

  items = $derived.by(() => {
    const known = new Map((this.counts?.items ?? []).map((each) => [each.platform, each.sessions]))
    for (const source of list.sources) if (!known.has(source)) known.set(source, 0)
    return [...known].map(([name, count]) => ({ name, count: this.said(count) }))
  })

  async load(): Promise<void> {
    this.counts = await get<Counts>('/sources', { shelf: list.filters.shelf })
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
