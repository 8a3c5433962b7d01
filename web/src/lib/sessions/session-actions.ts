/** Actions on sessions; most can be undone from their toast. */
import { ApiError, errorMessage, send } from '../api/http'
import { n, t } from '../i18n.svelte'
import { sessionList } from './session-list.svelte'
import { toasts } from '../ui/toasts.svelte'
import type { ListedSession, SessionSummary } from '../api/schema'
import type { Json } from '../api/types'

/** The data type of dragged sessions. */
export const SESSION_DRAG_TYPE = 'application/x-sessionary-sessions'

type Change = Record<string, Json>

async function patch(summary: ListedSession, change: Change): Promise<ListedSession> {
  const done = await send<ListedSession>('PATCH', `/sessions/${summary.id}`, change)
  sessionList.apply(done)
  return done
}

export async function rename(summary: ListedSession, title: string): Promise<void> {
  await patch(summary, { title })
}

export async function pin(summaries: ListedSession[], on: boolean): Promise<void> {
  await applyToEach(summaries, (summary) => patch(summary, { pinned: on }))
}

export async function archive(summaries: ListedSession[], on = true): Promise<void> {
  const done = await applyToEach(summaries, (summary) => patch(summary, { archived: on }))
  if (done.length) {
    toasts.show(n(on ? 'toast.archived' : 'toast.unarchived', done.length), async () => {
      await applyToEach(done, (summary) => patch(summary, { archived: !on }))
    })
  }
}

export async function trash(summaries: ListedSession[]): Promise<void> {
  const done = await applyToEach(summaries, async (summary) => {
    sessionList.apply(await send<ListedSession>('DELETE', `/sessions/${summary.id}`))
  })
  if (done.length)
    toasts.show(
      n('toast.trashed', done.length),
      () => restore(done),
      false,
      done.map((summary) => summary.id),
    )
}

export async function restore(summaries: ListedSession[]): Promise<void> {
  await applyToEach(summaries, async (summary) => {
    sessionList.apply(await send<ListedSession>('POST', `/sessions/${summary.id}/restore`, {}))
  })
}

export async function move(summaries: ListedSession[], project: string | null): Promise<void> {
  const before = summaries.map((summary) => [summary, summary.project] as const)
  const done = await applyToEach(summaries, (summary) => patch(summary, { project }))
  if (!done.length) return
  const text = project ? n('toast.moved', done.length, { project }) : n('toast.unmoved', done.length)
  toasts.show(text, async () => {
    for (const [summary, old] of before) await patch(summary, { project: old })
  })
}

export async function fork(
  summary: ListedSession,
  at: number | null,
  title: string | null = null,
): Promise<ListedSession> {
  const forked = await send<ListedSession>('POST', `/sessions/${summary.id}/fork`, { at, title })
  sessionList.apply(forked)
  return forked
}

/** Add the wanted labels to each session; remove the common ones that are no longer wanted. */
export async function label(summaries: ListedSession[], wanted: string[], common: string[]): Promise<void> {
  const before = summaries.map((summary) => [summary, summary.labels] as const)
  const done = await applyToEach(summaries, (summary) => {
    const kept = summary.labels.filter((one) => !common.includes(one) && !wanted.includes(one))
    return patch(summary, { labels: [...kept, ...wanted] })
  })
  if (!done.length) return
  toasts.show(n('toast.labelled', done.length), async () => {
    for (const [summary, old] of before) await patch(summary, { labels: old })
  })
}

export function sessionTitle(summary: SessionSummary): string {
  return summary.title ?? summary.preview ?? t('list.untitled')
}

/** What the turn of a running session is doing. */
export function runningText(summary: SessionSummary): string {
  return t(summary.waits_for_people ? 'state.asks' : summary.waiting ? 'transcript.waiting' : 'state.running')
}

/** Apply an action to one session after the other. Returns those that succeeded; shows each reason for a failure once. */
async function applyToEach(
  summaries: ListedSession[],
  act: (summary: ListedSession) => Promise<unknown>,
): Promise<ListedSession[]> {
  const done: ListedSession[] = []
  const failed = new Map<string, ListedSession[]>()
  for (const summary of summaries) {
    try {
      await act(summary)
      done.push(summary)
    } catch (error) {
      const reason = errorMessage(error)
      failed.set(reason, [...(failed.get(reason) ?? []), summary])
      if (error instanceof ApiError && error.kind === 'purged') sessionList.remove(summary.id)
    }
  }
  for (const [reason, those] of failed) {
    const [first] = those
    toasts.show(
      first && those.length === 1 ? `${sessionTitle(first)}: ${reason}` : n('toast.failed', those.length, { reason }),
      null,
      true,
    )
  }
  return done
}
