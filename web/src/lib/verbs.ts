/** What a person does with sessions, each with its way back. */
import { Problem, explain, send, url } from './api'
import { n, t } from './i18n.svelte'
import { list } from './list.svelte'
import { toasts } from './toasts.svelte'
import type { Head, Json } from './types'

/** The kind of thing that a row is when it is dragged. */
export const DRAGGED = 'application/x-sessionary-sessions'

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
  if (done.length)
    toasts.show(
      n('toast.trashed', done.length),
      () => restore(done),
      false,
      done.map((head) => head.id),
    )
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

/** The tools that a conversation can go on in. */
export const TOOLS = {
  'claude-code': 'Claude Code',
  codex: 'Codex',
  openai: 'Chat Completions',
  'open-webui': 'Open WebUI',
  hermes: 'Hermes',
} as const

/** A file to keep or to read, or one that a tool goes on from. */
export type Form = 'jsonl' | 'md' | 'html' | keyof typeof TOOLS

export interface ExportWish {
  form: Form
  tools?: boolean
  reasoning?: boolean
  redact?: boolean
  masked?: boolean
  /** At most so many tokens go along to a tool. */
  budget?: number | null
}

export function isTool(form: Form): boolean {
  return form in TOOLS
}

export function exportQuery({
  form,
  tools = true,
  reasoning = true,
  redact = false,
  masked = false,
  budget = null,
}: ExportWish) {
  const what = isTool(form) ? { as: form, budget } : { format: form }
  return {
    ...what,
    tools: tools ? null : false,
    reasoning: reasoning ? null : false,
    redact: redact || null,
    mask_secrets: masked || null,
  }
}

export function exportPath(ids: string[], wish: ExportWish): string {
  return url('/export', { session: ids, ...exportQuery(wish) })
}

export function nameOf(head: Head): string {
  return head.title ?? head.preview ?? t('list.untitled')
}

/** One after the other; what failed is said once for each reason, and what was done stays done. */
async function each(heads: Head[], act: (head: Head) => Promise<unknown>): Promise<Head[]> {
  const done: Head[] = []
  const failed = new Map<string, Head[]>()
  for (const head of heads) {
    try {
      await act(head)
      done.push(head)
    } catch (error) {
      const reason = explain(error)
      failed.set(reason, [...(failed.get(reason) ?? []), head])
      if (error instanceof Problem && error.kind === 'purged') list.remove(head.id)
    }
  }
  for (const [reason, those] of failed) {
    const [first] = those
    toasts.show(
      first && those.length === 1 ? `${nameOf(first)}: ${reason}` : n('toast.failed', those.length, { reason }),
      null,
      true,
    )
  }
  return done
}
