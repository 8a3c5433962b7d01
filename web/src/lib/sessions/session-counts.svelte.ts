/** The number of sessions by folder and by source, and the models in use. */
import { get } from '../api/http'
import { sessionList } from './session-list.svelte'
import type { ModelPage, SourcePage } from '../api/schema'

class SessionCountStore {
  private counts = $state.raw<SourcePage | null>(null)
  private usedModels = $state.raw<string[]>([])

  /** The models of all sessions, loaded or not. */
  models = $derived(
    [...new Set([...(sessionList.filters.model ? [sessionList.filters.model] : []), ...this.usedModels])].sort(),
  )

  items = $derived.by(() => {
    const known = new Map((this.counts?.items ?? []).map((each) => [each.platform, each.sessions]))
    for (const source of sessionList.sources) if (!known.has(source)) known.set(source, 0)
    return [...known].map(([name, count]) => ({ name, count: this.countText(count) }))
  })

  async load(): Promise<void> {
    this.counts = await get<SourcePage>('/sources', { folder: sessionList.filters.folder })
  }

  async loadModels(): Promise<void> {
    this.usedModels = (await get<ModelPage>('/models')).items.map((each) => each.model)
  }

  /** The number of sessions in a folder, formatted; empty until it is loaded. */
  inFolder(folder: string): string {
    const by = this.counts?.folders
    if (!by) return ''
    return this.countText(folder === 'all' ? (by['chats'] ?? 0) + (by['automation'] ?? 0) : (by[folder] ?? 0))
  }

  private countText(count: number): string {
    const most = this.counts?.most ?? Infinity
    return count >= most ? `${most.toLocaleString()}+` : count.toLocaleString()
  }
}

export const sessionCounts = new SessionCountStore()
