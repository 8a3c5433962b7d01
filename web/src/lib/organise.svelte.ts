/** What a person does with the sessions that are meant: the selection, a row, or what is open. */
import { explain } from './api'
import { provideAll } from './commands.svelte'
import { dialogs } from './dialogs.svelte'
import { t } from './i18n.svelte'
import { list } from './list.svelte'
import { projects } from './projects.svelte'
import { router, sessionPath } from './router.svelte'
import { toasts } from './toasts.svelte'
import type { Head } from './types'
import * as verbs from './verbs'

class Bench {
  /** The head of the session that is open. */
  head = $state.raw<Head | null>(null)
  /** The row whose menu is open. */
  pointed = $state.raw<Head | null>(null)
}

export const bench = new Bench()

function meant(): Head[] {
  if (bench.pointed && !list.selected.has(bench.pointed.id)) return [bench.pointed]
  if (list.selected.size) return list.chosen
  const row = (document.activeElement as HTMLElement | null)?.closest<HTMLElement>('.item')?.dataset['id']
  const focused = row ? list.find(row) : null
  return focused ? [focused] : bench.head ? [bench.head] : []
}

export async function attempt(act: () => Promise<unknown>): Promise<void> {
  await act().catch((error: unknown) => toasts.show(explain(error), null, true))
}

/** A title that is taken is asked for again, with the reason; the old one stays until a new one holds. */
async function rename(): Promise<void> {
  const [one] = meant()
  if (!one) return
  let value = one.title ?? ''
  let problem: string | undefined
  for (;;) {
    const title = await dialogs.ask({
      title: t('cmd.rename'),
      value,
      button: t('cmd.rename'),
      ...(problem ? { problem } : {}),
    })
    if (title === null) return
    try {
      await verbs.rename(one, title)
      return
    } catch (error) {
      value = title
      problem = explain(error)
    }
  }
}

async function label(): Promise<void> {
  const heads = meant()
  if (!heads.length) return
  const common = heads[0]?.labels.filter((each) => heads.every((head) => head.labels.includes(each))) ?? []
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
  await attempt(() => verbs.label(heads, wanted, common))
}

export async function fork(head: Head | null | undefined, seq: number | null): Promise<void> {
  if (head) await attempt(async () => router.go(sessionPath((await verbs.fork(head, seq)).id), { composes: true }))
}

export function provideOrganising(): () => void {
  const then = (act: (all: Head[]) => Promise<unknown>) => () => {
    const all = meant()
    list.selectNone()
    if (all.length) void attempt(() => act(all))
  }
  return provideAll({
    rename,
    label,
    pin: () => {
      const all = meant()
      void attempt(() => verbs.pin(all, !all.every((each) => each.pinned)))
    },
    archive: then((all) => verbs.archive(all, !all.every((each) => each.archived))),
    trash: then((all) => (all.every((each) => each.trashed) ? verbs.restore(all) : verbs.trash(all))),
    move: () => attempt(() => projects.choose(meant())),
    fork: () => fork(meant()[0], null),
    export: () => {
      const all = meant()
      if (all.length) dialogs.export(all.map((each) => each.id))
    },
  })
}
