/** Questions to the person: one at a time, answered or left. */
export interface Choice {
  value: string
  label: string
}

export interface Question {
  title: string
  text?: string
  value?: string
  choices?: Choice[]
  button: string
  dangerous?: boolean
  done: (answer: string | null) => void
}

class Dialogs {
  question = $state.raw<Question | null>(null)

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
}

export const dialogs = new Dialogs()
