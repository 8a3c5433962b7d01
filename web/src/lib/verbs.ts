/** What a person does with sessions, each with its way back. */
import { explain, send, url } from './api'
import { n, t } from './i18n.svelte'
import { list } from './list.svelte'
import { toasts } from './toasts.svelte'
import type { Head, Json } from './types'

/** The kind of thing that a row is when it is dragged. */
export const DRAGGED = 'application/x-hansard-sessions'

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

/** Give each the wanted labels; those that all had and nobody wants any more go. */
export async function label(heads: Head[], wanted: string[], common: string[]): Promise<void> {
  const before = heads.map((head) => [head, head.labels] as const)
  const done = await each(heads, (head) => {
    const kept = head.labels.filter((one) => !common.includes(one) && !wanted.includes(one))
    return patch(head, { labels: [...kept, ...wanted] })
  })
  if (!done.length) return
  toasts.show(n('toast.labelled', done.length), async () => {
    for (const [head, old] of before) await patch(head, { labels: old })
  })
}

export type Format = 'jsonl' | 'md' | 'html'

export interface ExportWish {
  format: Format
  tools?: boolean
  reasoning?: boolean
  redact?: boolean
}

export function exportPath(ids: string[], { format, tools = true, reasoning = true, redact = false }: ExportWish): string {
  return url('/export', { session: ids, format, tools: tools ? null : false, reasoning: reasoning ? null : false, redact: redact || null })
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
