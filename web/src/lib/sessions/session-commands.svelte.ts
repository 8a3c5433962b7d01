/** Commands on sessions: on the selected ones, else the one with the open menu or the focus, else the open one. */
import { errorMessage } from '../api/http'
import { registerCommands } from '../ui/commands'
import { dialogs } from '../ui/dialogs.svelte'
import { t } from '../i18n.svelte'
import { sessionList } from './session-list.svelte'
import { projects } from './projects.svelte'
import { router, sessionPath } from '../ui/router.svelte'
import { toasts } from '../ui/toasts.svelte'
import type { ListedSession } from '../api/schema'
import * as actions from './session-actions'

class Workbench {
  /** The session that is open. */
  openSession = $state.raw<ListedSession | null>(null)
  /** The id of the session whose row has the focus. */
  focusedId: string | null = null
  /** The session whose menu is open. */
  menuSession = $state.raw<ListedSession | null>(null)
}

export const workbench = new Workbench()

function targetSessions(): ListedSession[] {
  if (workbench.menuSession && !sessionList.selected.has(workbench.menuSession.id)) return [workbench.menuSession]
  if (sessionList.selected.size) return sessionList.selectedSessions
  const focused = workbench.focusedId ? sessionList.find(workbench.focusedId) : null
  return focused ? [focused] : workbench.openSession ? [workbench.openSession] : []
}

export async function toastErrors(act: () => Promise<unknown>): Promise<void> {
  await act().catch((error: unknown) => toasts.show(errorMessage(error), null, true))
}

/** Ask for a title until the server accepts one. */
async function rename(): Promise<void> {
  const [session] = targetSessions()
  if (!session) return
  let value = session.title ?? ''
  let rejection: string | undefined
  for (;;) {
    const title = await dialogs.ask({
      title: t('cmd.rename'),
      value,
      button: t('cmd.rename'),
      ...(rejection ? { error: rejection } : {}),
    })
    if (title === null) return
    try {
      await actions.rename(session, title)
      return
    } catch (error) {
      value = title
      rejection = errorMessage(error)
    }
  }
}

async function label(): Promise<void> {
  const summaries = targetSessions()
  if (!summaries.length) return
  const common =
    summaries[0]?.labels.filter((each) => summaries.every((summary) => summary.labels.includes(each))) ?? []
  const text = await dialogs.ask({
    title: t('cmd.label'),
    text: t('label.text'),
    value: common.join(', '),
    button: t('label.set'),
  })
  if (text === null) return
  const wanted = [
    ...new Set(
      text
        .split(',')
        .map((each) => each.trim())
        .filter(Boolean),
    ),
  ]
  await toastErrors(() => actions.label(summaries, wanted, common))
}

export async function forkSession(summary: ListedSession | null | undefined, seq: number | null): Promise<void> {
  if (summary)
    await toastErrors(async () =>
      router.go(sessionPath((await actions.fork(summary, seq)).id), { focusesComposer: true }),
    )
}

export function registerSessionCommands(): () => void {
  const then = (act: (all: ListedSession[]) => Promise<unknown>) => () => {
    const all = targetSessions()
    sessionList.selectNone()
    if (all.length) void toastErrors(() => act(all))
  }
  return registerCommands({
    rename,
    label,
    pin: () => {
      const all = targetSessions()
      void toastErrors(() => actions.pin(all, !all.every((each) => each.pinned)))
    },
    archive: then((all) => actions.archive(all, !all.every((each) => each.archived))),
    trash: then((all) => (all.every((each) => each.trashed) ? actions.restore(all) : actions.trash(all))),
    move: () => toastErrors(() => projects.moveSessions(targetSessions())),
    fork: () => forkSession(targetSessions()[0], null),
    export: () => {
      const all = targetSessions()
      if (all.length) dialogs.openExport(all.map((each) => each.id))
    },
  })
}
