/** What a person does with sessions, each with its way back. */
import { explain, send, url } from './api'
import { n, t } from './i18n.svelte'
import { list } from './list.svelte'
import { toasts } from './toasts.svelte'
import type { Head, Json } from './types'

type Change = Record<string, Json>

async function patch(head: Head, change: Change): Promise<Head> {
  const done = await send<Head>('PATCH', `/sessions/${head.id}`, change)
  list.take(done)
  return done
}

export async function rename(head: Head, title: string): Promise<void> {
  await patch(head, { title })
}

export async function pin(heads: Head[], on: boolean): Promise<void> {
  await each(heads, (head) => patch(head, { pinned: on }))
}

export async function archive(heads: Head[], on = true): Promise<void> {
  const done = await each(heads, (head) => patch(head, { archived: on }))
  if (done.length) {
    toasts.show(n(on ? 'toast.archived' : 'toast.unarchived', done.length), async () => {
      await each(done, (head) => patch(head, { archived: !on }))
    })
  }
}

export async function trash(heads: Head[]): Promise<void> {
  const done = await each(heads, async (head) => {
    list.take(await send<Head>('DELETE', `/sessions/${head.id}`))
  })
  if (done.length) toasts.show(n('toast.trashed', done.length), () => restore(done))
}

export async function restore(heads: Head[]): Promise<void> {
  await each(heads, async (head) => {
    list.take(await send<Head>('POST', `/sessions/${head.id}/restore`, {}))
  })
}

export async function move(heads: Head[], project: string | null): Promise<void> {
  const before = heads.map((head) => [head, head.project] as const)
  const done = await each(heads, (head) => patch(head, { project }))
  if (!done.length) return
  const text = project ? n('toast.moved', done.length, { project }) : n('toast.unmoved', done.length)
  toasts.show(text, async () => {
    for (const [head, old] of before) await patch(head, { project: old })
  })
}

export async function fork(head: Head, at: number | null, title: string | null = null): Promise<Head> {
  const made = await send<Head>('POST', `/sessions/${head.id}/fork`, { at, title })
  list.take(made)
  return made
}

export function exportPath(ids: string[], format: 'jsonl' | 'md' | 'html'): string {
  return url('/export', { session: ids, format })
}

export function download(ids: string[], format: 'jsonl' | 'md' | 'html'): void {
  const link = document.createElement('a')
  link.href = exportPath(ids, format)
  link.download = `hansard.${format}`
  link.click()
}

export function nameOf(head: Head): string {
  return head.title ?? head.preview ?? t('list.untitled')
}

/** One after the other; what failed is said, and what was done stays done. */
async function each(heads: Head[], act: (head: Head) => Promise<unknown>): Promise<Head[]> {
  const done: Head[] = []
  for (const head of heads) {
    try {
      await act(head)
      done.push(head)
    } catch (error) {
      toasts.show(`${nameOf(head)}: ${explain(error)}`, null, true)
    }
  }
  return done
}
