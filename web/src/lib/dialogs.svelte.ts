/** Questions to the person: one at a time, answered or left. */
export interface Choice {
  value: string
  label: string
}

export interface Question {
  title: string
  text?: string
  /** Why the last answer was not taken. */
  problem?: string
  value?: string
  /** More than one: a box for several lines. */
  lines?: number
  choices?: Choice[]
  button: string
  dangerous?: boolean
  done: (answer: string | null) => void
}

class Dialogs {
  question = $state.raw<Question | null>(null)
  /** The sessions that shall be exported; none of them means all. */
  exporting = $state.raw<string[] | null>(null)

  ask(question: Omit<Question, 'done'>): Promise<string | null> {
    return new Promise((resolve) => {
      this.question = {
        ...question,
        done: (answer) => {
          this.question = null
          resolve(answer)
        },
      }
    })
  }

  export(ids: string[]): void {
    this.exporting = ids
  }
}

export const dialogs = new Dialogs()
