import { get, send } from './api'
import { dialogs } from './dialogs.svelte'
import { n, t, type Key } from './i18n.svelte'
import { live } from './live.svelte'
import { router } from './router.svelte'
import type { Head, Page, Project } from './types'
import { move } from './verbs'

/** Seven colours that can be told apart in both themes. */
const COLOURS = ['#2b5bc7', '#1d7a3d', '#b3261e', '#8a5a00', '#8e3aa8', '#0b7285', '#6b6f76'] as const
const NEW = '\u0000new'
const NONE = '\u0000none'

const COUNT_MS = 1000

class Projects {
  items = $state.raw<Project[]>([])
  /** In which project each session stands that the stream has told of. */
  private places = new Map<string, string | null>()
  private timer: ReturnType<typeof setTimeout> | undefined

  /** A session that moved, wherever that was done, changes how many its project has. */
  start(): void {
    live.listen((name, data) => {
      if (name !== 'head') return
      const head = data as Head
      const before = this.places.get(head.id)
      this.places.set(head.id, head.project)
      if ((before ?? null) === head.project) return
      this.timer ??= setTimeout(() => {
        this.timer = undefined
        void this.load().catch(() => undefined)
      }, COUNT_MS)
    })
  }

  async load(): Promise<void> {
    this.items = (await get<Page<Project>>('/projects')).items
  }

  /** Make a project that a person names; its name, or null. */
  async create(): Promise<string | null> {
    const name = await dialogs.ask({ title: t('project.new'), value: '', button: t('action.create') })
    if (!name?.trim()) return null
    const made = await send<Project>('POST', '/projects', {
      name,
      colour: COLOURS[this.items.length % COLOURS.length] ?? null,
    })
    await this.load()
    return made.name
  }

  async rename(project: Project): Promise<void> {
    const name = await dialogs.ask({ title: t('cmd.rename'), value: project.name, button: t('cmd.rename') })
    if (name?.trim() && name !== project.name) await this.change(project, { name })
  }

  async paint(project: Project): Promise<void> {
    const choices = COLOURS.map((colour, place) => ({ value: colour, label: t(`colour.${place}` as Key) }))
    const colour = await dialogs.ask({ title: t('project.colour'), choices, button: t('action.set') })
    if (colour) await this.change(project, { colour })
  }

  async remove(project: Project): Promise<void> {
    const sure = await dialogs.ask({
      title: t('project.remove'),
      text: n('project.removeText', project.sessions),
      button: t('project.remove'),
      dangerous: true,
    })
    if (!sure) return
    await send('DELETE', `/projects/${encodeURIComponent(project.name)}`)
    if (router.route.query.get('project') === project.name) router.filter({ project: null })
    await this.load()
  }

  /** Ask where sessions shall go, and move them there. */
  async choose(heads: Head[]): Promise<void> {
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
    await move(heads, name === NONE ? null : name)
    await this.load()
  }

  private async change(project: Project, change: Record<string, string>): Promise<void> {
    const done = await send<Project>('PATCH', `/projects/${encodeURIComponent(project.name)}`, change)
    if (router.route.query.get('project') === project.name) router.filter({ project: done.name })
    await this.load()
  }
}

export const projects = new Projects()
