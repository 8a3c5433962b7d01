/** The dialog that is open: at most one prompt at a time, the export, or what a model saw. */
export interface Choice {
  value: string
  label: string
}

export interface Prompt {
  title: string
  text?: string
  /** Why the last answer was rejected. */
  error?: string
  value?: string
  /** Shows a text area with this many lines instead of a text field. */
  lines?: number
  choices?: Choice[]
  button: string
  dangerous?: boolean
  done: (answer: string | null) => void
}

class Dialogs {
  prompt = $state.raw<Prompt | null>(null)
  /** The ids of the sessions to export; an empty list means all. */
  exporting = $state.raw<string[] | null>(null)

  /** The turn whose model calls are shown. */
  seenTurn = $state<string | null>(null)

  ask(prompt: Omit<Prompt, 'done'>): Promise<string | null> {
    return new Promise((resolve) => {
      this.prompt = {
        ...prompt,
        done: (answer) => {
          this.prompt = null
          resolve(answer)
        },
      }
    })
  }

  openExport(ids: string[]): void {
    this.exporting = ids
  }
}

export const dialogs = new Dialogs()
