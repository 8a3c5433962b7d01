import { get, send } from '../api/http'
import { dialogs } from '../ui/dialogs.svelte'
import { n, t, type MessageKey } from '../i18n.svelte'
import { live } from '../live/live.svelte'
import { router } from '../ui/router.svelte'
import type { ListedSession, ProjectInfo, ProjectPage } from '../api/schema'
import { move } from './session-actions'

/** Seven colours that are easy to tell apart in both themes. */
const COLOURS = ['#2b5bc7', '#1d7a3d', '#b3261e', '#8a5a00', '#8e3aa8', '#0b7285', '#6b6f76'] as const
const NEW = '\u0000new'
const NONE = '\u0000none'

const COUNT_MS = 1000

class Projects {
  items = $state.raw<ProjectInfo[]>([])
  /** The project of each session that the stream mentioned. */
  private projectOf = new Map<string, string | null>()
  private timer: ReturnType<typeof setTimeout> | undefined

  /** Reload the projects with their counts when a session moves, here or elsewhere. */
  start(): void {
    live.listen((name, data) => {
      if (name !== 'head') return
      const summary = data as ListedSession
      const before = this.projectOf.get(summary.id)
      this.projectOf.set(summary.id, summary.project)
      if ((before ?? null) === summary.project) return
      this.timer ??= setTimeout(() => {
        this.timer = undefined
        void this.load().catch(() => undefined)
      }, COUNT_MS)
    })
  }

  async load(): Promise<void> {
    this.items = (await get<ProjectPage>('/projects')).items
  }

  /** Ask for a name and create a project. Returns the name, or null if the person cancelled. */
  async create(): Promise<string | null> {
    const name = await dialogs.ask({ title: t('project.new'), value: '', button: t('action.create') })
    if (!name?.trim()) return null
    const project = await send<ProjectInfo>('POST', '/projects', {
      name,
      colour: COLOURS[this.items.length % COLOURS.length] ?? null,
    })
    await this.load()
    return project.name
  }

  async rename(project: ProjectInfo): Promise<void> {
    const name = await dialogs.ask({ title: t('cmd.rename'), value: project.name, button: t('cmd.rename') })
    if (name?.trim() && name !== project.name) await this.change(project, { name })
  }

  async setColour(project: ProjectInfo): Promise<void> {
    const choices = COLOURS.map((colour, index) => ({ value: colour, label: t(`colour.${index}` as MessageKey) }))
    const colour = await dialogs.ask({ title: t('project.colour'), choices, button: t('action.set') })
    if (colour) await this.change(project, { colour })
  }

  async remove(project: ProjectInfo): Promise<void> {
    const sure = await dialogs.ask({
      title: t('project.remove'),
      text: n('project.removeText', project.sessions),
      button: t('project.remove'),
      dangerous: true,
    })
    if (!sure) return
    await send('DELETE', `/projects/${encodeURIComponent(project.name)}`)
    if (router.route.query.get('project') === project.name) router.setQuery({ project: null })
    await this.load()
  }

  /** Ask for a project and move the sessions there. */
  async moveSessions(summaries: ListedSession[]): Promise<void> {
    const choices = [
      ...this.items.map((each) => ({ value: each.name, label: each.name })),
      { value: NEW, label: t('project.new') },
      { value: NONE, label: t('project.none') },
    ]
    let name = await dialogs.ask({ title: t('project.move'), choices, button: t('action.move') })
    if (name === NEW) {
      name = await this.create()
    }
    if (!name) return
    await move(summaries, name === NONE ? null : name)
    await this.load()
  }

  private async change(project: ProjectInfo, change: Record<string, string>): Promise<void> {
    const done = await send<ProjectInfo>('PATCH', `/projects/${encodeURIComponent(project.name)}`, change)
    if (router.route.query.get('project') === project.name) router.setQuery({ project: done.name })
    await this.load()
  }
}

export const projects = new Projects()
