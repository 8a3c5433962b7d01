import { get, send } from './api'
import { dialogs } from './dialogs.svelte'
import { t } from './i18n.svelte'
import type { Head, Page, Project } from './types'
import { move } from './verbs'

const NEW = '\u0000new'
const NONE = '\u0000none'

class Projects {
  items = $state.raw<Project[]>([])

  async load(): Promise<void> {
    this.items = (await get<Page<Project>>('/projects')).items
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
      name = await dialogs.ask({ title: t('project.new'), value: '', button: t('action.create') })
      if (name) await send('POST', '/projects', { name })
    }
    if (!name) return
    await move(heads, name === NONE ? null : name)
    await this.load()
  }
}

export const projects = new Projects()
